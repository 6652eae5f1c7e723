// Pairs of ranks of one cluster whose messages its library carries. Each direction takes a
// communicator of its own, which both ends make in the background when they have met; channels
// carry messages until then, and where there can be none.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/bell.h"
#include "ccl/ccl.h"
#include "comm/channels.h"
#include "comm/chores.h"
#include "comm/mail.h"
#include "comm/pair_opening.h"
#include "exec/executor.h"

namespace hetccl::comm {

/// `meet` by the threads that launch, under the communicator's launch mutex; `stop` and `close` by
/// the thread that ends it. One thread, which exists while there are any, advances all pairs that
/// are being opened, and hands communicators over where nobody drives (Engine::exclusively).
class Pairs : private PairOpening::Owner {
 public:
  /// Outlives the pairs.
  struct Environment {
    const Context& context;
    Membership& membership;
    device::Device& device;
    ccl::Library& library;
    const Channels& channels;
    exec::Executor& executor;
  };
  static Result<std::unique_ptr<Pairs>> create(const Environment& environment);

  /// Opens pairs with the other ends of messages, which have met (Channels::meet).
  void meet(std::span<const exec::Message> messages);
  /// The communicator has failed: nobody waits for a pair any more. Thread-safe.
  void give_up(const Status& why);
  /// Takes another rank's note on pairs, or the news that a rank has left. By the control plane's
  /// thread.
  void on_note(int from, std::span<const uint8_t> note) { mail_.on_note(from, note); }
  void on_left(int rank) { mail_.on_left(rank); }
  /// The first failure of a pair's communicator. Thread-safe.
  [[nodiscard]] Status async_error();
  /// Returns once nothing opens any more, soon after `deadline`.
  void stop(TimePoint deadline);
  /// Nothing uses the pairs any more.
  void close();

 private:
  using Libraries = std::array<std::unique_ptr<exec::MessageLibrary>, 2>;  // as Communicators

  Pairs(const Environment& environment, std::unique_ptr<Cancel> cancel);
  [[nodiscard]] bool may_open(int peer) const;
  void meet(int peer);
  PairBudget::Share prepare(int peer);
  Status make_libraries(int peer);
  void settle(int peer, const PairOpening::Numbers& first);
  [[nodiscard]] bool sends(size_t direction, int peer) const {
    return (direction == 0) == (rank_ < peer);
  }
  void drive();
  TimePoint advance_all();

  // PairOpening::Owner
  Result<ccl::UniqueId> make_id() override;
  Result<std::unique_ptr<ccl::PendingPair>> begin_pair(const ccl::PairSeat& seat) override;
  PairOpening::Numbers propose(int peer) override;
  void carry(PairOpening& opening, const PairOpening::Numbers& first) override;
  void refuse(int peer, const Status& why) override;
  void disagree(int peer, const Status& why) override;
  void drop(std::unique_ptr<ccl::Communicator> communicator) override;
  [[nodiscard]] Status cancelled() override { return cancel_->reason(); }
  [[nodiscard]] bool stops() override { return stops_; }
  [[nodiscard]] bool has_left(int peer) override {
    return environment_.membership.departures().has_left(peer);
  }
  void log(const std::string& line) override { environment_.context.log.info("%s", line.c_str()); }

  const Environment environment_;
  const Clock& clock_;
  const int rank_;
  const std::unique_ptr<Cancel> cancel_;
  Bell bell_;  // there is something to advance
  Mail mail_;
  std::set<int> met_;                                 // guarded by the communicator's launch mutex
  std::list<std::unique_ptr<PairOpening>> openings_;  // the driving thread's
  std::atomic<bool> stops_{false};
  std::mutex mutex_;  // guards what follows
  std::condition_variable rested_;
  std::list<std::unique_ptr<PairOpening>> arrived_;  // to be driven, too
  bool advances_ = false;                            // the thread does, at this moment
  bool under_way_ = false;                           // some openings are, as it last saw
  std::map<int, Libraries> libraries_;  // of those that carry nothing: devices are asked at `close`
  std::vector<std::unique_ptr<ccl::Communicator>> used_, unused_;
  std::vector<PairBudget::Share> shares_;  // of those that are used
  Chores driving_;                         // the last: its thread uses all of the above
};

}  // namespace hetccl::comm
