// A rank's side of the control plane: the Session that `join` returns. Users' threads make the
// calls; only the control thread touches the connection.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/connection.h"
#include "bootstrap/loop.h"
#include "bootstrap/silence.h"
#include "bootstrap/unique_id.h"

namespace hetccl::bootstrap {

class Client;
/// The live sessions of a Service, for its end. Used on the control thread only.
using Clients = std::set<Client*>;

class Client final : public Session, private Connection::Owner {
 public:
  struct Options {
    JoinOptions join;
    int64_t liveness_ms = 0;
    uint64_t service = 0;
    net::Secret secret;  ///< the job's, with the file's mixed in
  };
  Client(std::shared_ptr<Loop> loop, std::shared_ptr<Clients> clients, Invitation invitation,
         Options options);
  ~Client() override;

  /// Blocks until every rank has joined over `connected`, or returns the error in the answer.
  Status join(net::Wire connected, TimePoint deadline);
  /// The Service ends before this session: fails waiting calls without telling the coordinator.
  /// Called on the control thread.
  void abandon();
  /// This process's control plane cannot continue: ends the communicator on all ranks. Called on
  /// the control thread.
  void give_up(const Status& why);

  [[nodiscard]] int rank() const override { return options_.join.rank; }
  [[nodiscard]] int n_ranks() const override { return options_.join.n_ranks; }
  [[nodiscard]] uint64_t communicator() const override { return invitation_.communicator; }
  [[nodiscard]] const std::vector<uint8_t>& secret() const override { return options_.secret; }
  Result<std::vector<Bytes>> all_gather(const Bytes& mine, int64_t timeout_ms) override;
  Status barrier(int64_t timeout_ms) override;
  void report(const Failure& failure) override;
  void report_stall(const Stall& stall) override;
  Status send_note(int to, Bytes note) override;
  void leave(uint64_t called) override;

 private:
  /// The all-gather in progress, as its caller sees it.
  struct Gather {
    uint64_t sequence = 0;
    bool active = false;
    bool done = false;
    uint64_t expanded = 0;
    Bytes received;
  };

  void on_frame(const Header& header, std::span<const uint8_t> payload) override;
  void on_closed(const std::string& why) override;
  void on_welcome(const Welcome& welcome);
  bool on_gathered(const Gathered& piece);
  bool on_departed(const std::vector<Departure>& departures);
  bool on_inquiry(uint64_t sequence);
  bool on_noted(const Note& note);
  void send_report(const Failure& failure, Bytes frame);
  void on_farewell();
  void on_cancel();
  void stop_watching_cancel();
  void connect(net::Wire wire, Bytes join_frame);
  void connect_or_throw(net::Wire wire, Bytes join_frame);
  void tick();
  [[nodiscard]] std::string coordinator_name() const;
  void fail_without_coordinator(const std::string& why);
  void fail(const Failure& failure);
  void stop_ticking();
  [[nodiscard]] Status wait(std::unique_lock<std::mutex>& lock, TimePoint deadline,
                            const bool& arrived);
  [[nodiscard]] Status begin_gather();

  const std::shared_ptr<Loop> loop_;
  const std::shared_ptr<Clients> clients_;
  const Invitation invitation_;
  const Options options_;

  // Used by the control thread only.
  std::shared_ptr<Connection> connection_;
  Welcome coordinator_;
  bool farewell_ = false;
  std::optional<Failure> reported_;
  std::optional<Silence> unanswered_;  // since the report
  std::optional<Loop::Timer> tick_timer_;
  uint64_t cancel_watch_ = 0;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool joined_ = false;
  bool left_ = false;
  Status ended_;  // why no more exchange is possible
  bool failed_ = false;
  Gather gather_;
};

}  // namespace hetccl::bootstrap
