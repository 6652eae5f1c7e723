// Rendezvous and control plane. Ranks meet through a unique id: the process that made it runs the
// *coordinator*, which every rank dials. The connections stay for the communicator's life: they
// carry all-gathers at init, heartbeats, failures, aborts and leave-takings. One thread per Service
// serves every communicator; no rank's death silences the others, and the coordinator's own death
// is seen by all as the loss of that process.
//
// Ranks also send each other notes: small messages, relayed by the coordinator, which wait for
// nobody. A receiver that reads too slowly loses notes, nothing else.
//
// Failures are arbitrated: a rank that sees something wrong reports it, the coordinator tells
// everyone the first cause it learnt, so all ranks name the same one.
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

/// What ranks share out of band: magic, version, a 32-byte secret, and the coordinator's addresses.
using UniqueId = std::array<uint8_t, 128>;

/// The longest note that a rank may tell, in bytes.
inline constexpr size_t kMaxNote = size_t{16} << 10;
/// Receiver of a note: every rank but the sender.
inline constexpr int kEveryone = -1;
/// Receiver of a note: every rank, the sender too. The coordinator relays it to all at once, so it
/// comes before a failure, or a departure, on all ranks or on none.
inline constexpr int kAll = -2;

/// What happened to a communicator. `rank` is the culprit, or -1.
struct Failure {
  ErrorCode code = ErrorCode::RemoteError;
  int rank = -1;
  std::string reason;  ///< for the user, e.g. "rank 2 (host b, pid 7) was lost: connection closed"
};

/// A collective that does not complete, as a rank sees it that waits for it. InvalidUsage: the
/// ranks disagree on it.
struct Stall {
  Failure failure;        ///< its code, and what happened: "barrier #3 timed out after 100 ms"
  uint64_t sequence = 0;  ///< the collective's number within its communicator
  std::string call;       ///< what this rank called under that number
  std::string detail;     ///< what else it knows, for when no rank is to blame; may be ""
};

/// How far a rank has come.
struct Position {
  uint64_t called = 0;     ///< collectives so far: the last one has number called - 1
  uint64_t completed = 0;  ///< of those
  std::string call;        ///< what it called under the number asked for; "": not known any more
};

/// The longest knock, in bytes.
inline constexpr size_t kMaxKnock = 1024;
/// Takes the words of who has knocked, on the control thread, without blocking; what it returns is
/// the answer.
using OnKnock = std::function<Status(std::span<const uint8_t> words)>;

/// What one rank may give to an exchange, in bytes.
inline constexpr size_t kMaxGathered = size_t{1} << 20;

/// One rank's membership of one communicator. Thread-safe.
class Session {
 public:
  virtual ~Session() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int n_ranks() const = 0;
  /// A number that all ranks of this communicator share and no other communicator of the job has;
  /// random 64 bits.
  [[nodiscard]] virtual uint64_t communicator() const = 0;
  /// The job's secret, for the transports' own connections: the unique id's, with
  /// HETCCL_SECRET_FILE's mixed in.
  [[nodiscard]] virtual const std::vector<uint8_t>& secret() const = 0;

  /// Collective: every rank's bytes (at most kMaxGathered each, sizes may differ), by rank. Blocks
  /// until all have come, the deadline passes (Timeout naming the ranks that are missing; the
  /// communicator has failed then, as a contribution cannot be taken back), or the communicator
  /// fails. One at a time.
  virtual Result<std::vector<std::vector<uint8_t>>> all_gather(const std::vector<uint8_t>& mine,
                                                               int64_t timeout_ms) = 0;
  /// Collective, as all_gather, when only arrival counts.
  virtual Status barrier(int64_t timeout_ms) = 0;

  /// Reports a failure that this rank noticed; the answer comes through the callback given to
  /// `join`: this cause or an earlier one, within the liveness deadline at the latest.
  virtual void report(const Failure& failure) = 0;
  /// The same for a collective: the coordinator asks all ranks how far they are, for half the
  /// liveness deadline at most, and the cause names those for which this rank waits,
  /// or those that called something else than most.
  virtual void report_stall(const Stall& stall) = 0;
  /// Sends `note` to rank `to`, to kEveryone or to kAll, whose `on_note` receives it. Does not
  /// wait, and may be called from within `on_note`. One sender's notes arrive at one receiver in
  /// the order sent, and before that receiver learns that the sender has left. Ok does not promise
  /// arrival: the coordinator drops a note whose receiver has left, and either end drops one that
  /// would wait behind 1 MiB of notes on the same connection. InvalidArgument when `note` is longer
  /// than kMaxNote or `to` is no rank. After this rank has left, or the communicator has failed or
  /// lost its coordinator, nothing is sent and the error is that of an exchange.
  virtual Status tell(int to, std::vector<uint8_t> note) = 0;
  /// Says goodbye: silence and a closed connection are no failure from now on. The others learn
  /// that this rank has made `called` calls and makes no more. Idempotent; the destructor calls it
  /// for a rank that has called nothing.
  virtual void leave(uint64_t called) = 0;
};

/// An id of `Service::unique_id(parent)` without its secret.
UniqueId conceal(const UniqueId& id);
/// The whole id again, on a rank of `parent`. InvalidArgument when it is none.
Result<UniqueId> reveal(const UniqueId& concealed, const Session& parent);

/// Whether it is an id of a coordinator: other libraries' ids begin in another way.
bool is_id(const UniqueId& id);
/// Whether an id names `place`, "host:port", as those of `Service::id_at` do.
Result<bool> is_at(const UniqueId& id, const std::string& place);

struct JoinOptions {
  int rank = 0;
  int n_ranks = 1;
  std::string description;  ///< of this rank for messages: "host a, pid 12"
  int64_t timeout_ms = 60'000;
  /// Called at most once, from the service's thread, when the communicator has failed. Must not
  /// block or call the Session. Not called after `leave` has returned.
  std::function<void(const Failure&)> on_failure;
  /// From the same thread, under the same rules: `rank` has left after `called` calls.
  std::function<void(int rank, uint64_t called)> on_left;
  /// From the same thread: rank `from` has told this rank `note`, which is valid during the call
  /// only. Must not block or call the Session, except for `tell`; may come before `join` has
  /// returned. Not called after `leave` has returned. Where it is empty, notes are dropped.
  std::function<void(int from, std::span<const uint8_t> note)> on_note;
  /// From the same thread, without blocking: where this rank is, and what its call `sequence` was.
  std::function<Position(uint64_t sequence)> position;
  /// Once it is set, `join` and the session's exchanges return its reason; reports still go out.
  /// May be null; outlives the session.
  const Cancel* cancel = nullptr;
};

/// The control plane of one Runtime: one thread, started with the first use. Thread-safe.
class Service {
 public:
  /// Reads HETCCL_SECRET_FILE: InvalidArgument where it will not do.
  static Result<std::unique_ptr<Service>> create(const Config& config, const Log& log);
  /// Sessions should have left: one that has not counts as lost to its peers. Ranks elsewhere that
  /// still use this process's coordinator are told that it goes in peace; they keep working,
  /// without exchanges or arbitration. Takes at most half a second. Harmless in a forked child,
  /// where a Service made before the fork does nothing.
  ~Service();

  /// Makes an id and starts its coordinator here. It serves until every rank that joined has left.
  Result<UniqueId> unique_id();
  /// The same for ranks of `parent`: the new secret follows from theirs, so that the id can travel
  /// over `parent`'s connections concealed.
  Result<UniqueId> unique_id(const Session& parent);
  /// An id that every process of a job makes for itself, without hearing of it: of the coordinator
  /// that one of them `serve`s at `place`, "host:port". `number` tells ids of one place apart. Its
  /// secret is HETCCL_SECRET_FILE's alone: InvalidUsage without one.
  Result<UniqueId> id_at(const std::string& place, uint64_t number);
  /// Starts the coordinator of an id of `id_at` here, unless it serves it already: the process
  /// whose HETCCL_PORT_RANGE is the place's port.
  Status serve(const UniqueId& id);
  /// Makes an id at which any process that has it may knock, and hears who does, until
  /// `close_door`.
  Result<UniqueId> open_door(OnKnock on_knock);
  /// When it returns `on_knock` is not called any more. Not from within it.
  void close_door(const UniqueId& door);
  /// Says at most kMaxKnock bytes at another process's door. Blocks for the answer.
  Status knock(const UniqueId& door, std::span<const uint8_t> words, const WaitLimit& limit);
  /// The same as `unique_id` for processes that know `door`: the id can travel concealed.
  Result<UniqueId> unique_id_for(const UniqueId& door);
  /// The whole id again, of one that `unique_id_for` made and `conceal` concealed.
  Result<UniqueId> reveal_for(const UniqueId& door, const UniqueId& concealed);
  /// Gives up an id of this process: ranks that come with it are told so.
  void withdraw(const UniqueId& id);
  /// For the end of the process: waits until the coordinator here, if there is one, has heard what
  /// this process's sessions said last, so that the others know it too. At most half a second.
  void settle();
  /// Whether nobody uses it: no session is joined here, and no rank anywhere an id that was made
  /// here, or may come with one.
  [[nodiscard]] bool idle();
  /// Blocks until all ranks have joined. Timeout names the ranks that never came; InvalidArgument
  /// when two ranks give the same number or different sizes (told to all); RemoteError when the
  /// id's secret is not the coordinator's; InvalidUsage when HETCCL_ENCRYPT (told to all) or
  /// HETCCL_SECRET_FILE differ from the coordinator's.
  Result<std::unique_ptr<Session>> join(const UniqueId& id, JoinOptions options);

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetccl::bootstrap
