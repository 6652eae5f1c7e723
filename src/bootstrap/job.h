// The coordinator's state of one communicator: its members, the all-gather in progress, heartbeats,
// and the first cause of its end. Lives on the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/connection.h"
#include "bootstrap/frame.h"
#include "bootstrap/inquest.h"
#include "bootstrap/loop.h"
#include "net/reminder.h"

namespace hetccl::bootstrap {

/// The ranks that have not joined when a communicator ends. They may come before `until`.
struct Missing {
  std::vector<int32_t> ranks;
  TimePoint until;
};

class Job {
 public:
  struct Options {
    int64_t liveness_ms = 0;
    uint64_t service = 0;  ///< of this process's Service
    Log log;
    std::string where;  ///< the addresses where ranks are expected
    /// Called once, as the last action: every rank has left, or `failure` was told to all. The Job
    /// is finished then, but still on the call stack.
    std::function<void(const std::optional<Failure>& failure, Missing missing)> on_end;
  };
  Job(Loop& loop, Options options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Handles a rank's request to join. While ranks are missing, a wrong number or size ends the
  /// communicator for all; once it is complete, only the newcomer is refused.
  void join(std::shared_ptr<Connection> connection, Join join);
  /// A rank of this communicator cannot join because of `failure`. Ends it for all while ranks are
  /// missing.
  void refuse_rank(const Failure& failure);
  /// Ends the communicator for all, with that cause.
  void fail(const Failure& failure);
  /// Notes that a connection claiming to be `rank` was refused, for the error if that rank never
  /// comes.
  void note_refused(int32_t rank, const std::string& why);
  /// Returns whether a rank of this process has not left yet.
  [[nodiscard]] bool has_local_ranks() const;
  /// The coordinator leaves: tells every rank and stops. It counts as a loss if a rank of its
  /// process, `abandoned`, has not left.
  void farewell(std::optional<int32_t> abandoned);

 private:
  class Member;

  void refuse_or_fail(Connection& newcomer, const Failure& failure);
  [[nodiscard]] std::optional<Failure> check_join(const Join& join) const;
  void send_welcome();
  [[nodiscard]] std::vector<int32_t> missing() const;
  void remind();
  void on_frame(Member& member, const Header& header, std::span<const uint8_t> payload);
  void contribute(Member& member, const Contribution& contribution);
  void send_gathered();
  void on_gather_timeout(int64_t timeout_ms);
  bool relay(const Member& sender, const Note& note);
  void leave(Member& member, uint64_t called);
  void send_departures();
  void inquire(Stall stall);
  void answer(const Member& member, Position position);
  void conclude();
  void fail_lost_rank(Member& member, const std::string& why);
  void fail_silent_ranks(Member& first, int64_t silence_ms);
  void on_join_timeout(int64_t timeout_ms);
  void tick();
  void end(const std::optional<Failure>& failure);
  [[nodiscard]] bool complete() const;
  [[nodiscard]] int64_t shortest_liveness_ms() const;
  [[nodiscard]] Duration tick_period() const;

  Loop& loop_;
  Options options_;
  int32_t n_ranks_ = 0;
  std::string refused_;  // the latest refusal of a non-member
  std::map<int32_t, std::unique_ptr<Member>> members_;
  size_t n_left_ = 0;
  bool said_farewell_ = false;
  uint64_t gather_sequence_ = 0;
  size_t n_contributions_ = 0;
  std::vector<Departure> departures_;      // not yet told to the others
  std::optional<Inquest> inquest_;         // into the first collective that does not complete
  std::optional<net::Reminder> reminder_;  // to log the missing ranks
  std::optional<Loop::Timer> join_timer_, remind_timer_, gather_timer_, tick_timer_,
      departure_timer_, inquest_timer_;
  TimePoint join_deadline_ = TimePoint::max();
  TimePoint gather_deadline_ = TimePoint::max();
  bool ended_ = false;
};

}  // namespace hetccl::bootstrap
