// Lets some ranks of a communicator meet without the others, as a shrink needs; a control-plane
// exchange would wait for all. The lowest of these ranks, the leader, waits for a note from each of
// the others, then answers with the id of the new communicator or the reason why there is none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "bootstrap/bootstrap.h"

namespace hetccl::comm {

/// Thread-safe, but only one thread at a time may call `agree`.
class Gathering {
 public:
  /// The first byte of each note.
  static constexpr uint8_t kMark = 'G';
  using MakeId = std::function<Result<bootstrap::UniqueId>()>;
  /// The parts of its communicator that a Gathering needs.
  struct Of {
    std::function<bootstrap::Session&()> session;
    std::function<bool(int rank)> has_left;
    std::function<Status()> ended;  ///< ok while the communicator works, else the reason to stop
                                    ///< waiting
  };

  /// A rank that waits for an answer reminds the leader after `reminder`, because notes may get
  /// lost.
  explicit Gathering(Of of, std::chrono::milliseconds reminder = std::chrono::seconds(1))
      : of_(std::move(of)), reminder_(reminder) {}

  /// Collective over `members`: ascending ranks, this one included. Returns the id that the first
  /// member made, byte for byte. Timeout names the members that have not called; InvalidUsage names
  /// those that called with other members. The communicator itself goes on. `cancel` ends the wait
  /// with its reason.
  Result<bootstrap::UniqueId> agree(const std::vector<int>& members, const MakeId& make_id,
                                    TimePoint deadline, const Cancel& cancel);

  // Called by the control plane's thread.
  void on_note(int from, std::span<const uint8_t> note);
  void on_left() { news_.notify_all(); }

 private:
  using Bytes = std::vector<uint8_t>;
  enum class Kind : uint8_t { Ask, Withdrawal, Id, Refusal };
  struct Note {
    uint64_t number = 0;  // counts the asker's requests from 1
    Bytes bytes;          // the members of a request; or an id, or a refusal's code and text; or
                          // empty
    Kind kind = Kind::Ask;
  };
  /// The conditions that end a call of `agree`.
  struct Limit {
    TimePoint deadline;
    const Cancel& cancel;
  };
  Result<bootstrap::UniqueId> lead(const std::vector<int>& members, const MakeId& make_id,
                                   const Limit& limit);
  Result<bootstrap::UniqueId> follow(int leader, const std::vector<int>& members,
                                     const Limit& limit);
  Status await_answer(const Note& ask, const std::vector<int>& members, const Limit& limit);
  [[nodiscard]] Status check_left(const std::vector<int>& members) const;
  [[nodiscard]] Result<bootstrap::UniqueId> read_answer(int leader, const Note& heard) const;
  Status await_asks(const std::vector<int>& members, const Limit& limit);
  Status compare_asks(const std::vector<int>& members);
  void answer(const std::vector<int>& members, Kind kind, const Bytes& bytes);
  [[nodiscard]] bool has_asked(int member);  // requires mutex_
  Result<bool> await_news(std::unique_lock<std::mutex>& lock, const Limit& limit);
  [[nodiscard]] Bytes ask_of(const std::vector<int>& members) const;
  Status send_note(int to, const Note& note);

  const Of of_;
  const std::chrono::milliseconds reminder_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable news_;
  std::map<int, Note> asked_;     // the newest request of each rank
  std::map<int, Note> answered_;  // the last answer to each rank
  std::map<int, Note> heard_;     // the newest answer of each leader
  uint64_t asks_ = 0;             // this rank's requests, by the calling thread
};

}  // namespace hetccl::comm
