// The flight recorder: what became of a communicator's last operations, for people who look for
// the reason of a hang or a failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/types.h"

namespace hetccl::exec {

/// What is known of one operation. Times that are not known (yet) are zero.
struct Record {
  enum class State : uint8_t { Launched, Started, Completed, Failed };
  uint64_t sequence = 0;
  Signature signature;  ///< of a message the peer is its root
  uint64_t slice_elements = 0;
  uint32_t slices = 0;
  uint64_t moved_bytes = 0;  ///< payload that this rank has sent, or in a message received
  State state = State::Launched;
  TimePoint launched{};
  TimePoint started{};    ///< the user's stream had reached it; unknown for one library call
  TimePoint completed{};  ///< or failed
  // A message has these, too.
  bool sends = false, by_library = false;
  uint32_t tag = 0;
  uint64_t number = 0;  ///< among those of its direction between these ranks
};

/// A ring of the last operations. One thread at a time launches, one at a time drives; anybody
/// reads, and gets what was whole at that moment. Writing is a few stores.
class Recorder {
 public:
  explicit Recorder(size_t operations = 1024) : entries_(operations) {}

  // By the thread that launches.
  void launch(const Record& record);
  // By whoever drives. Nothing, where that operation is forgotten.
  void start(uint64_t sequence, TimePoint when);
  void move(uint64_t sequence, uint64_t bytes);
  void end(uint64_t sequence, Record::State state, TimePoint when);

  /// Operations launched, and those of them that have ended, since the beginning.
  [[nodiscard]] uint64_t called() const { return called_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t ended() const { return ended_.load(std::memory_order_acquire); }
  /// What was called under that number; nullopt when nothing was, or when it is forgotten.
  [[nodiscard]] std::optional<Record> find(uint64_t sequence) const;
  /// All that is remembered, oldest first.
  [[nodiscard]] std::vector<Record> records() const;

 private:
  // Every word is an atomic, so that a reader who meets a writer reads nonsense at worst, and
  // throws it away when `tag` has changed meanwhile.
  struct Entry {
    std::atomic<uint64_t> tag{0};  // sequence + 1; 0 while it is written
    std::atomic<uint64_t> kind{0}, count{0}, slice_elements{0}, slices{0};
    std::atomic<uint64_t> moved_bytes{0}, state{0}, way{0}, number{0};
    std::atomic<int64_t> launched{0}, started{0}, completed{0};
  };
  // Null where a later operation has its place.
  Entry* at(uint64_t sequence);

  std::vector<Entry> entries_;
  std::atomic<uint64_t> called_{0}, ended_{0};
};

}  // namespace hetccl::exec
