// The listening side of a Service. It checks that newcomers know a secret, with one state machine
// each, and hands them to the Job they name. Strangers are bounded in number and time, so they
// delay nobody. Lives on the control thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "base/config.h"
#include "base/log.h"
#include "bootstrap/job.h"
#include "net/auth.h"
#include "net/crowd.h"
#include "net/refusals.h"
#include "net/socket.h"

namespace hetccl::bootstrap {

/// The control plane's net::Hello::purpose.
inline constexpr uint32_t kPurpose = 1;

class Coordinator {
 public:
  struct Options {
    int64_t liveness_ms = 0;
    uint64_t service = 0;
    Log log;
    net::Encryption encryption;  ///< null: plain
  };
  static Result<std::unique_ptr<Coordinator>> create(Loop& loop, net::Listener listener,
                                                     Options options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Expects the ranks of a new communicator. `where` are the addresses in its id.
  void add(uint64_t communicator, net::Key key, std::string where);
  /// Ends a communicator for those of its ranks that have come.
  void withdraw(uint64_t communicator);
  /// Passes each knock to `on_knock`, and its answer back.
  void open_door(uint64_t number, net::Key key, OnKnock on_knock);
  /// Answers later knocks with an error, as long as the door is among the latest few that closed.
  void close_door(uint64_t number);
  /// Tells all ranks that it leaves, and stops listening. `abandoned`: by communicator, a rank of
  /// this process that has not left.
  void farewell(const std::map<uint64_t, int32_t>& abandoned);
  /// Ends every communicator with that cause, because this process cannot continue.
  void fail_all(const Status& why);
  /// Returns whether ranks of this process's Service have not left yet.
  [[nodiscard]] bool has_local_ranks() const;
  /// Returns whether a communicator lives, a door is open, or a rank may still come that must hear
  /// why its communicator has ended.
  [[nodiscard]] bool is_needed() const;

 private:
  class Newcomer;
  struct Entry {
    net::Key key;
    std::shared_ptr<Job> job;
  };
  struct Door {
    net::Key key;
    OnKnock on_knock;
  };
  /// The answer to a late rank of a communicator that has ended, or at a door that is closed.
  struct Ended {
    uint64_t communicator = 0;
    net::Key key;
    Failure answer;
    Missing missing;  // and not answered yet
  };

  Coordinator(Loop& loop, net::Listener listener, Options options);
  Status watch_listener();
  void accept_waiting();
  void make_room();
  bool drop_one(const char* why);
  void pause_accepting(const Status& why);
  void admit(Fd fd);
  [[nodiscard]] const net::Key* key_of(const net::Hello& hello);
  void on_disagreement(const net::Hello& hello, bool proven, const Status& why);
  void join(uint64_t communicator, std::shared_ptr<Connection> connection, Join join);
  void knock(uint64_t number, Connection& connection, std::span<const uint8_t> words);
  void remember(Ended ended);
  [[nodiscard]] Ended* find_ended(uint64_t communicator);  // null: none
  void on_end(uint64_t communicator, const std::optional<Failure>& failure, Missing missing);
  void remove(uint64_t newcomer);
  void clear_later();

  Loop& loop_;
  net::Listener listener_;
  Options options_;
  uint64_t listener_watch_ = 0;
  TimePoint complains_from_{};  // earliest complaint about a lack of descriptors
  std::map<uint64_t, Entry> jobs_, finished_;
  std::map<uint64_t, Door> doors_;
  std::deque<Ended> ended_;                                            // the latest few
  net::Crowd unproven_;                                                // counts newcomers_
  std::map<uint64_t, std::shared_ptr<Newcomer>> newcomers_, removed_;  // by arrival
  uint64_t next_newcomer_ = 0;
  net::Refusals refusals_;
};

}  // namespace hetccl::bootstrap
