// Pairs of ranks of one cluster whose messages the vendor's library carries. Each direction has a
// communicator of its own, which both ends make in the background after they met. Channels carry
// messages until then, or always if no pair can be made.
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

/// Threads that launch call `meet` under the communicator's launch mutex; the thread that ends it
/// calls `stop` and `close`. One thread advances all openings; it exists only while there are any,
/// and hands communicators over under Engine::exclusively.
class Pairs : private PairOpening::Owner {
 public:
  /// Must outlive the pairs.
  struct Environment {
    const Context& context;
    Membership& membership;
    device::Device& device;
    ccl::Library& library;
    const Channels& channels;
    exec::Executor& executor;
  };
  static Result<std::unique_ptr<Pairs>> create(const Environment& environment);

  /// Opens pairs with the peers of `messages`, which have met (Channels::meet).
  void meet(std::span<const exec::Message> messages);
  /// Called when the communicator has failed: all openings end. Thread-safe.
  void give_up(const Status& why);
  /// Receive another rank's note on pairs, and the news that a rank has left. Called by the control
  /// plane's thread.
  void on_note(int from, std::span<const uint8_t> note) { mail_.on_note(from, note); }
  void on_left(int rank) { mail_.on_left(rank); }
  /// Returns the first failure of a pair's communicator. Thread-safe.
  [[nodiscard]] Status async_error();
  /// Waits until no opening is left, little longer than `deadline`.
  void stop(TimePoint deadline);
  /// Requires that nothing uses the pairs any more.
  void close();

 private:
  using Libraries = std::array<std::unique_ptr<exec::MessageLibrary>, 2>;  // by direction, as
                                                                           // Communicators

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

  // Implements PairOpening::Owner.
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
  Bell bell_;  // rings when an opening may advance
  Mail mail_;
  std::set<int> met_;                                 // guarded by the communicator's launch mutex
  std::list<std::unique_ptr<PairOpening>> openings_;  // used by the driving thread only
  std::atomic<bool> stops_{false};
  std::mutex mutex_;  // guards what follows
  std::condition_variable rested_;
  std::list<std::unique_ptr<PairOpening>> arrived_;  // new openings for the driving thread
  bool advances_ = false;                            // true while that thread advances openings
  bool under_way_ = false;                           // some opening was under way when it last
                                                     // looked
  std::map<int, Libraries> libraries_;  // not in use yet: `close` asks the device for these
  std::vector<std::unique_ptr<ccl::Communicator>> used_, unused_;
  std::vector<PairBudget::Share> shares_;  // of pairs in use
  Chores driving_;                         // declared last: its thread uses everything above
};

}  // namespace hetccl::comm
