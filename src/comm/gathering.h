// How some ranks of a communicator meet without the others, as a shrink does: an exchange of the
// control plane would wait for all. The lowest of them, the leader, waits for a note from each of
// the others, and answers with the id of their new communicator, or with the reason why there is
// none.
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

/// Thread-safe; but one thread at a time calls `agree`.
class Gathering {
 public:
  /// The first byte of its notes.
  static constexpr uint8_t kMark = 'G';
  using MakeId = std::function<Result<bootstrap::UniqueId>()>;
  /// The communicator, as far as this has to know it.
  struct Of {
    std::function<bootstrap::Session&()> session;
    std::function<bool(int rank)> has_left;
    std::function<Status()> ended;  ///< why nobody waits any more; ok while it goes on
  };

  /// Who waits for an answer reminds the leader after `reminder`, since notes may get lost.
  explicit Gathering(Of of, std::chrono::milliseconds reminder = std::chrono::seconds(1))
      : of_(std::move(of)), reminder_(reminder) {}

  /// Collective over `members`, ranks in ascending order, this one among them: the id that the
  /// first of them has made, which travels as it is. Timeout names the members that have not
  /// called, InvalidUsage those that have called with other members; the communicator goes on.
  /// `cancel` ends it with its reason.
  Result<bootstrap::UniqueId> agree(const std::vector<int>& members, const MakeId& make_id,
                                    TimePoint deadline, const Cancel& cancel);

  // By the control plane's thread.
  void on_note(int from, std::span<const uint8_t> note);
  void on_left() { news_.notify_all(); }

 private:
  using Bytes = std::vector<uint8_t>;
  enum class Kind : uint8_t { Ask, Withdrawal, Id, Refusal };
  struct Note {
    uint64_t number = 0;  // the asker's, from 1
    Bytes bytes;          // an ask's members, an id, a refusal's code and text, or nothing
    Kind kind = Kind::Ask;
  };
  /// When a call of `agree` ends, whatever it waits for.
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
  [[nodiscard]] bool has_asked(int member);  // with mutex_ held
  Result<bool> await_news(std::unique_lock<std::mutex>& lock, const Limit& limit);
  [[nodiscard]] Bytes ask_of(const std::vector<int>& members) const;
  Status tell(int to, const Note& note);

  const Of of_;
  const std::chrono::milliseconds reminder_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable news_;
  std::map<int, Note> asked_;     // the newest of each rank
  std::map<int, Note> answered_;  // what each rank was told last
  std::map<int, Note> heard_;     // the newest answer of each leader
  uint64_t asks_ = 0;             // of this rank, by the thread that calls
};

}  // namespace hetccl::comm
