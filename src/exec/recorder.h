// The flight recorder: keeps a communicator's last operations, to explain a hang or a failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/types.h"

namespace hetccl::exec {

/// The record of one operation. Times that are unknown are zero.
struct Record {
  enum class State : uint8_t { Launched, Started, Completed, Failed };
  uint64_t sequence = 0;
  Signature signature;  ///< for a message, `root` is the peer
  uint64_t slice_elements = 0;
  uint32_t slices = 0;
  uint64_t moved_bytes = 0;  ///< payload sent by this rank, or received in a message
  State state = State::Launched;
  TimePoint launched{};
  TimePoint started{};    ///< when the user's stream reached it; unknown for a single library call
  TimePoint completed{};  ///< or failed
  // The members below are set for messages only.
  bool sends = false, by_library = false;
  uint32_t tag = 0;
  uint64_t number = 0;  ///< among the messages of its direction between these ranks
};

/// A ring of the last operations. One thread at a time launches and one drives. Any thread may
/// read; it skips entries that are being written. Writing takes a few stores.
class Recorder {
 public:
  explicit Recorder(size_t operations = 1024) : entries_(operations) {}

  // Called by the launching thread.
  void launch(const Record& record);
  // Called by the driving thread. Does nothing if the operation is forgotten.
  void start(uint64_t sequence, TimePoint when);
  void move(uint64_t sequence, uint64_t bytes);
  void end(uint64_t sequence, Record::State state, TimePoint when);

  /// Return how many operations were launched, and how many of these have ended.
  [[nodiscard]] uint64_t called() const { return called_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t ended() const { return ended_.load(std::memory_order_acquire); }
  /// Returns the record of that number; nullopt if it was never launched or is forgotten.
  [[nodiscard]] std::optional<Record> find(uint64_t sequence) const;
  /// Returns all records, oldest first.
  [[nodiscard]] std::vector<Record> records() const;

 private:
  // Every word is atomic. A reader that overlaps a writer reads an inconsistent entry at worst, and
  // drops it because `tag` has changed.
  struct Entry {
    std::atomic<uint64_t> tag{0};  // sequence + 1; 0 while it is being written
    std::atomic<uint64_t> kind{0}, count{0}, slice_elements{0}, slices{0};
    std::atomic<uint64_t> moved_bytes{0}, state{0}, way{0}, number{0};
    std::atomic<int64_t> launched{0}, started{0}, completed{0};
  };
  // Returns null if a later operation has replaced it.
  Entry* at(uint64_t sequence);

  std::vector<Entry> entries_;
  std::atomic<uint64_t> called_{0}, ended_{0};
};

}  // namespace hetccl::exec
