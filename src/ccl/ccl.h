// The vendor CCL seam: the collectives of one cluster. hetccl's plans use three operations inside a
// cluster. Two take lists of shards, the same on all ranks, of which the classical collectives are
// special cases that adaptors recognise:
// - reduce: with one equal, contiguous shard per rank it is reduce_scatter; with one shard, a
// rooted reduce.
// - broadcast: with one equal, contiguous shard per rank it is all_gather; with one shard, a
// broadcast.
// Other lists become one group of rooted calls (ncclGroupStart ... ncclGroupEnd); a broadcast to a
// single rank is a send and a receive. The third operation, `exchange`, takes each rank's own
// messages: all-to-all, gather and scatter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/tactic.h"
#include "base/types.h"

namespace hetccl {
class Waker;
class ShmSource;
}  // namespace hetccl

namespace hetccl::ccl {

/// One piece of a reduce or broadcast. All ranks pass the same pieces in the same order; only
/// `send` and `recv` differ.
struct Shard {
  int root = 0;  ///< rank in the cluster's communicator
  const void* send =
      nullptr;  ///< reduce: this rank's contribution; broadcast: the data, read at the root alone
  void* recv =
      nullptr;  ///< reduce: the result, written at the root alone; broadcast: written everywhere
  size_t count = 0;  ///< elements; may be 0
  /// Broadcast: the only rank that receives; -1: all ranks receive.
  int receiver = -1;
  /// True if, on every rank, this shard's memory (reduce: `send`; broadcast: `recv`) begins where
  /// the previous shard's ends. One vendor call may then take both.
  bool follows = false;
};
// In place: `recv == send` is allowed in every shard.

/// Returns InvalidArgument if a root or receiver is not a rank of the cluster.
Status check_ranks(std::span<const Shard> shards, int n_ranks);

/// One message between this rank and `peer`, which may be this rank. Each rank lists its own sends
/// and receives.
struct Transfer {
  int peer = 0;          ///< rank in the cluster's communicator
  bool send = false;     ///< to `peer`; false: receive from `peer`
  void* data = nullptr;  ///< read by a send, written by a receive
  size_t count = 0;      ///< elements; 0: no message, and the peer may omit it
};

/// Returns InvalidArgument if a peer is not a rank of the cluster, or if the messages that `rank`
/// sends to itself do not match those that it receives from itself.
Status check_transfers(std::span<const Transfer> transfers, int n_ranks, int rank);

/// Opaque bytes that start a communicator. The cluster's first rank makes them; the bootstrap
/// carries them to the others.
struct UniqueId {
  uint8_t bytes[128] = {};
};

/// Two ranks of a cluster, by their numbers in it, that called different operations.
struct Disagreement {
  uint64_t number = 0;  ///< the caller's number of the first call that differs
  int rank = 0, other = 0;
};

/// The communicator of a cluster, or of a pair of its ranks. Enqueueing calls return at once; every
/// rank makes the same calls in the same order. One thread at a time calls it. Later failures show
/// in `async_error`.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Sets the caller's number of the operation that later calls belong to. All ranks number
  /// operations alike, and an adaptor that compares calls compares the numbers, too.
  virtual void number_calls(uint64_t number) { static_cast<void>(number); }
  /// Sets how later collectives run, within `tactics`: alike on all ranks.
  virtual void set_tactic(const Tactic& tactic) { static_cast<void>(tactic); }
  /// Returns the tactics that `set_tactic` accepts; nullopt: none.
  [[nodiscard]] virtual std::optional<Tactics> tactics() const { return std::nullopt; }
  /// Computes recv[i] = op over all ranks' send[i]. Avg divides by the number of ranks; PreMulSum
  /// multiplies this rank's elements by `how.factor`, in the precision of the sum (base/reduce.h).
  virtual Status all_reduce(const void* send, void* recv, size_t count, DataType type,
                            const Reducer& how, void* stream) = 0;
  /// Like `all_reduce`, for a caller that will wait, on an empty stream. Returns true if it is
  /// complete on return, because the other ranks called at the same time; otherwise it continues on
  /// `stream`.
  virtual Result<bool> all_reduce_at_once(const void* send, void* recv, size_t count, DataType type,
                                          const Reducer& how, void* stream) {
    HETCCL_TRY(all_reduce(send, recv, count, type, how, stream));
    return false;
  }
  virtual Status reduce(std::span<const Shard> shards, DataType type, const Reducer& how,
                        void* stream) = 0;
  virtual Status broadcast(std::span<const Shard> shards, DataType type, void* stream) = 0;
  /// Moves all messages of `transfers` at the same time, so no order in the list deadlocks. Between
  /// two ranks, in one direction, the n-th send of a call matches the n-th receive of the matching
  /// call, with the same count. Memory that the call writes must not overlap other memory of the
  /// call, except that a rank may receive its own message in place.
  ///
  /// Collective: every rank makes the call at the same place among its calls, with the same type; a
  /// rank without messages passes an empty list. Returns Unsupported unless
  /// `Library::supports_exchange`.
  virtual Status exchange(std::span<const Transfer> transfers, DataType type, void* stream);
  /// Holds every rank's stream until all ranks' streams have reached it.
  virtual Status barrier(void* stream) = 0;

  /// Registers memory of later calls, so that the library may access it directly. Returns a handle
  /// for `deregister_memory`; null: nothing is registered.
  virtual Result<void*> register_memory(void* memory, size_t bytes) {
    static_cast<void>(memory), static_cast<void>(bytes);
    return nullptr;
  }
  /// Requires that no call uses the memory any more.
  virtual Status deregister_memory(void* registration) {
    static_cast<void>(registration);
    return {};
  }

  /// Returns the first failure of enqueued work, e.g. InvalidUsage naming ranks that called
  /// different operations.
  [[nodiscard]] virtual Status async_error() const = 0;
  /// Returns the ranks that called different operations, if `async_error` is about that and the
  /// adaptor knows them.
  [[nodiscard]] virtual std::optional<Disagreement> disagreement() const { return std::nullopt; }
  /// Ends all enqueued work in bounded time, with undefined results. Does not block. Thread-safe;
  /// may be called at any time.
  virtual void abort() = 0;
  /// After `abort`: returns whether work that starts from now on is aborted, too. Streams must not
  /// be released before: the data they feed the library could complete on other ranks as a success.
  /// Thread-safe.
  [[nodiscard]] virtual bool abort_has_begun() { return true; }
  /// Non-null if peers advance it through shared memory while the engine sleeps.
  [[nodiscard]] virtual ShmSource* shm_source() = 0;
};

/// One end of a pair: two ranks of a cluster that only exchange messages.
struct PairSeat {
  UniqueId id;
  int rank = 0;    ///< 0 or 1
  int blocks = 0;  ///< maximum thread blocks of its kernels, the same at both ends
};

/// A pair's communicator that is being made. Its destructor abandons it. One thread at a time calls
/// it.
class PendingPair {
 public:
  using Made = Result<std::unique_ptr<Communicator>>;
  virtual ~PendingPair() = default;
  /// Returns nothing while it is being made: call again after `wake` (Library::begin_pair), or by
  /// `again`, which this only makes earlier. Does not block. Null: other work on a device kept the
  /// two ranks from meeting there, so a retry may succeed. The other rank may then have a
  /// communicator.
  virtual std::optional<Made> poll(TimePoint now, TimePoint& again) = 0;
};

/// The ranks of one vendor and version that a library can join.
struct Reach {
  bool hosts = true;           ///< ranks of several hosts
  bool architectures = false;  ///< ranks whose devices differ in architecture
};

/// The number of thread blocks of a communicator's kernels; 0: the library chooses.
struct Blocks {
  int least = 0, most = 0;
  [[nodiscard]] bool given() const { return least > 0 || most > 0; }
};

/// A vendor's library.
class Library {
 public:
  virtual ~Library() = default;
  [[nodiscard]] virtual std::string name() const = 0;     ///< "host", "nccl", "rccl"
  [[nodiscard]] virtual std::string version() const = 0;  ///< equal versions can share a cluster
  /// Returns whether it reduces elements of `type` by `op`. Data that is only moved may be of any
  /// type.
  [[nodiscard]] virtual bool supports(DataType type, RedOp op) const = 0;
  /// Returns whether its communicators have `exchange`.
  [[nodiscard]] virtual bool supports_exchange() const { return false; }
  /// Returns whether it has `begin_pair`.
  [[nodiscard]] virtual bool makes_pairs() const { return false; }
  [[nodiscard]] virtual Reach reach() const = 0;
  /// Returns whether a broadcast's shard may name a receiver.
  [[nodiscard]] virtual bool sends() const { return true; }
  /// Makes an id on the first rank of a cluster of `n_ranks`, within `limit`.
  virtual Result<UniqueId> unique_id(int n_ranks, const WaitLimit& limit) = 0;
  /// `id`, made here, will not be used: frees the cluster's meeting place.
  virtual void forget(const UniqueId& id) { static_cast<void>(id); }
  /// Collective over the cluster; blocks within `limit` for the other ranks. `waker` (may be null)
  /// wakes the engine that drives this rank; it must outlive the communicator.
  virtual Result<std::unique_ptr<Communicator>> init(const UniqueId& id, int n_ranks, int rank,
                                                     Waker* waker, const WaitLimit& limit) = 0;
  /// Like `init`, with that many thread blocks for its kernels. Returns Unsupported if the library
  /// cannot limit them.
  virtual Result<std::unique_ptr<Communicator>> init_with_blocks(const UniqueId& id, int n_ranks,
                                                                 int rank, const Blocks& blocks,
                                                                 const WaitLimit& limit);
  /// Begins `init` for a pair, within `limit`; any thread may call `wake` when `poll` has news. A
  /// rank may have many pairs that wait at once, and ranks make pairs in different orders, so none
  /// may wait for another. Pairs need their own communicators because a library runs one
  /// communicator's calls in order, even on different streams, so a waiting message would block the
  /// next.
  virtual Result<std::unique_ptr<PendingPair>> begin_pair(const PairSeat& seat, Waker* waker,
                                                          const WaitLimit& limit,
                                                          std::function<void()> wake);
};

}  // namespace hetccl::ccl
