// Rendezvous and control plane. Ranks meet through a unique id: the process that made it runs the
// *coordinator*, which every rank dials. The connections last for the communicator's life. They
// carry all-gathers at init, heartbeats, failures, aborts and departures. One thread per Service
// serves every communicator. A rank's death does not silence the others, and all of them notice the
// coordinator's death as the loss of its process.
//
// Ranks also send each other notes: small messages, relayed by the coordinator, that nobody waits
// for. A receiver that reads too slowly loses notes, nothing else.
//
// Failures are arbitrated: a rank that sees a failure reports it, and the coordinator tells all
// ranks the first cause it learnt, so that all name the same one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/status.h"

namespace hetccl::bootstrap {

/// The id that ranks share out of band: magic, version, a 32-byte secret, and the coordinator's
/// addresses.
using UniqueId = std::array<uint8_t, 128>;

/// The longest note, in bytes.
inline constexpr size_t kMaxNote = size_t{16} << 10;
/// A note's receiver: every rank but the sender.
inline constexpr int kEveryone = -1;
/// A note's receiver: every rank, the sender included. The coordinator relays it to all at once, so
/// it precedes a failure or a departure on all ranks or on none.
inline constexpr int kAll = -2;

/// The failure of a communicator. `rank` is the culprit, or -1.
struct Failure {
  ErrorCode code = ErrorCode::RemoteError;
  int rank = -1;
  std::string reason;  ///< for the user, e.g. "rank 2 (host b, pid 7) was lost: connection closed"
};

/// A collective that does not complete, reported by a rank that waits for it. InvalidUsage: the
/// ranks disagree on it.
struct Stall {
  Failure failure;        ///< its code and text: "barrier #3 timed out after 100 ms"
  uint64_t sequence = 0;  ///< the collective's number in its communicator
  std::string call;       ///< this rank's call of that number
  std::string detail;     ///< used if no rank is to blame; may be ""
};

/// The progress of a rank.
struct Position {
  uint64_t called = 0;     ///< collectives so far; the last has number called - 1
  uint64_t completed = 0;  ///< of these, completed
  std::string call;        ///< its call of the requested number; "": forgotten
};

/// The longest knock, in bytes.
inline constexpr size_t kMaxKnock = 1024;
/// Takes the bytes of a process that knocked, on the control thread, without blocking. Its result
/// is the answer.
using OnKnock = std::function<Status(std::span<const uint8_t> words)>;

/// The longest contribution of one rank to an exchange, in bytes.
inline constexpr size_t kMaxGathered = size_t{1} << 20;

/// One rank's membership of one communicator. Thread-safe.
class Session {
 public:
  virtual ~Session() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int n_ranks() const = 0;
  /// Returns a random 64-bit number that all ranks of this communicator share and no other
  /// communicator of the job has.
  [[nodiscard]] virtual uint64_t communicator() const = 0;
  /// Returns the job's secret for the transports' own connections: the unique id's, with
  /// HETCCL_SECRET_FILE's mixed in.
  [[nodiscard]] virtual const std::vector<uint8_t>& secret() const = 0;

  /// Collective: returns every rank's bytes by rank (at most kMaxGathered each; sizes may differ).
  /// Blocks until all have come, the communicator fails, or the deadline passes: then Timeout names
  /// the missing ranks, and the communicator has failed, because a contribution cannot be taken
  /// back. One at a time.
  virtual Result<std::vector<std::vector<uint8_t>>> all_gather(const std::vector<uint8_t>& mine,
                                                               int64_t timeout_ms) = 0;
  /// Collective, like all_gather, but only waits for arrival.
  virtual Status barrier(int64_t timeout_ms) = 0;

  /// Reports a failure that this rank has seen. The answer comes through the callback of `join`,
  /// within the liveness deadline: this cause or an earlier one.
  virtual void report(const Failure& failure) = 0;
  /// Reports a collective that does not complete. The coordinator asks all ranks for their
  /// positions, for at most half the liveness deadline. The cause names the ranks that this one
  /// waits for, or those that called something else than most.
  virtual void report_stall(const Stall& stall) = 0;
  /// Sends `note` to rank `to`, to kEveryone or to kAll; their `on_note` receives it. Does not
  /// block, and may be called from within `on_note`. One sender's notes arrive at one receiver in
  /// order, and before the news that the sender has left. Ok does not promise arrival: the
  /// coordinator drops a note whose receiver has left, and either end drops one that would wait
  /// behind 1 MiB of notes on the same connection. Returns InvalidArgument if `note` is longer than
  /// kMaxNote or `to` is no rank. If this rank has left, or the communicator has failed or lost its
  /// coordinator, sends nothing and returns an exchange's error.
  virtual Status send_note(int to, std::vector<uint8_t> note) = 0;
  /// Leaves: from now on silence and a closed connection are no failure. The others learn that this
  /// rank has made `called` calls and makes no more. Idempotent; the destructor calls it for a rank
  /// that has called nothing.
  virtual void leave(uint64_t called) = 0;
};

/// Returns an id of `Service::unique_id(parent)` without its secret.
UniqueId conceal(const UniqueId& id);
/// Restores such an id on a rank of `parent`. Returns InvalidArgument if it is none.
Result<UniqueId> reveal(const UniqueId& concealed, const Session& parent);

/// Returns whether `id` is a coordinator's. Ids of other libraries begin differently.
bool is_id(const UniqueId& id);
/// Returns whether an id names `place`, "host:port", as ids of `Service::id_at` do.
Result<bool> is_at(const UniqueId& id, const std::string& place);

struct JoinOptions {
  int rank = 0;
  int n_ranks = 1;
  std::string description;  ///< of this rank for messages: "host a, pid 12"
  int64_t timeout_ms = 60'000;
  /// Called at most once, from the service's thread, when the communicator has failed. Must not
  /// block or call the Session. Not called after `leave` has returned.
  std::function<void(const Failure&)> on_failure;
  /// Called from the same thread, under the same rules, when `rank` has left after `called` calls.
  std::function<void(int rank, uint64_t called)> on_left;
  /// Called from the same thread for a `note` of rank `from`, which is valid during the call only.
  /// Must not block or call the Session, except `send_note`. May be called before `join` has
  /// returned, but not after `leave` has. Empty: notes are dropped.
  std::function<void(int from, std::span<const uint8_t> note)> on_note;
  /// Called from the same thread; must not block. Returns this rank's position, and its call
  /// `sequence`.
  std::function<Position(uint64_t sequence)> position;
  /// Once set, `join` and the session's exchanges return its reason; reports are still sent. May be
  /// null; must outlive the session.
  const Cancel* cancel = nullptr;
};

/// The control plane of one Runtime: one thread, started on first use. Thread-safe.
class Service {
 public:
  /// Reads HETCCL_SECRET_FILE. Returns InvalidArgument if the file cannot be used.
  static Result<std::unique_ptr<Service>> create(const Config& config, const Log& log);
  /// Sessions should have left; their peers count any other as lost. Tells remote ranks that still
  /// use this process's coordinator that it leaves in order; they continue, without exchanges or
  /// arbitration. Takes at most half a second. Does nothing in a forked child for a Service made
  /// before the fork.
  ~Service();

  /// Makes an id and starts its coordinator here, which serves until every rank that joined has
  /// left.
  Result<UniqueId> unique_id();
  /// Makes an id for ranks of `parent`. Its secret follows from theirs, so the id can be sent
  /// concealed over `parent`'s connections.
  Result<UniqueId> unique_id(const Session& parent);
  /// Returns an id that every process of a job can compute without communication. Its coordinator
  /// is the one that a process `serve`s at `place`, "host:port". `number` distinguishes ids of one
  /// place. Its only secret is HETCCL_SECRET_FILE's; returns InvalidUsage without one.
  Result<UniqueId> id_at(const std::string& place, uint64_t number);
  /// Starts the coordinator of an `id_at` id here, unless it runs already. For the process whose
  /// HETCCL_PORT_RANGE is the place's port.
  Status serve(const UniqueId& id);
  /// Makes an id at which any process that has it may knock, until `close_door`.
  Result<UniqueId> open_door(OnKnock on_knock);
  /// After this returns, `on_knock` is not called any more. Must not be called from within it.
  void close_door(const UniqueId& door);
  /// Sends at most kMaxKnock bytes to another process's door. Blocks for the answer.
  Status knock(const UniqueId& door, std::span<const uint8_t> words, const WaitLimit& limit);
  /// Makes an id for processes that know `door`; it can be sent concealed.
  Result<UniqueId> unique_id_for(const UniqueId& door);
  /// Restores an id that `unique_id_for` made and `conceal` concealed.
  Result<UniqueId> reveal_for(const UniqueId& door, const UniqueId& concealed);
  /// Withdraws an id of this process. Ranks that join with it are told so.
  void withdraw(const UniqueId& id);
  /// For the end of the process: waits, at most half a second, until the coordinator here, if any,
  /// has received the last messages of this process's sessions, so that other ranks get them, too.
  void settle();
  /// Returns whether it is unused: no session is joined here, and no rank anywhere uses, or may
  /// still use, an id made here. A communicator that ended before all its ranks had joined is in
  /// use until each of them has come and heard the reason, but not beyond the latest time at which
  /// they may come, nor once 64 others have ended since.
  [[nodiscard]] bool idle();
  /// Blocks until all ranks have joined. Errors: Timeout names ranks that never came;
  /// InvalidArgument if two ranks give the same number or different sizes (told to all);
  /// RemoteError if the id's secret is not the coordinator's; InvalidUsage if HETCCL_ENCRYPT (told
  /// to all) or HETCCL_SECRET_FILE differs from the coordinator's.
  Result<std::unique_ptr<Session>> join(const UniqueId& id, JoinOptions options);

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetccl::bootstrap
