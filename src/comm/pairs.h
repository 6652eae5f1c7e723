// Pairs of ranks of one cluster whose messages its library carries. Each direction takes a
// communicator of its own, which both ends make in the background when they have met; channels
// carry messages until then, and where there can be none.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "ccl/ccl.h"
#include "comm/channels.h"
#include "comm/chores.h"
#include "comm/mail.h"
#include "exec/executor.h"

namespace hetccl::comm {

/// `meet` by the threads that launch, under the communicator's launch mutex; `stop` and `close` by
/// the thread that ends it. Threads of `opening_` make communicators meanwhile and hand them
/// over where nobody drives (Engine::exclusively).
class Pairs {
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
  void give_up(const Status& why) {
    cancel_->set(why);
    mail_.wake();
  }
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
  // The first carries what the lower rank sends, the second what the higher one sends.
  using Communicators = std::array<std::unique_ptr<ccl::Communicator>, 2>;

  Pairs(const Environment& environment, std::unique_ptr<Cancel> cancel);
  [[nodiscard]] bool may_open(int peer) const;
  void meet(int peer);
  void settle(int peer, uint64_t first_sent, uint64_t first_received);
  void open(int peer);
  Status try_open(int peer, PairBudget::Share share);
  Status negotiate(int peer, PairBudget::Share share);
  Status make_communicators(int peer, int blocks, Communicators& made);
  Result<std::unique_ptr<ccl::Communicator>> make_communicator(int peer, int blocks);
  Result<ccl::UniqueId> agree_on_id(int peer);
  Status use(int peer, const Communicators& communicators);
  void keep(std::unique_ptr<ccl::Communicator> communicator, bool used);
  void report_disagreement(int peer, const Status& why);
  Status agree(int peer, const Status& made);

  const Environment environment_;
  const int rank_;
  const std::unique_ptr<Cancel> cancel_;
  Mail mail_;
  std::set<int> met_;  // guarded by the communicator's launch mutex
  std::atomic<int> talks_{0};
  std::atomic<bool> stops_{false};
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<ccl::Communicator>> used_, unused_;
  std::vector<PairBudget::Share> shares_;  // of those that are used
  ChoresAtOnce opening_;                   // the last: its threads use all of the above
};

}  // namespace hetccl::comm
