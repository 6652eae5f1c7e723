// The vendor CCL seam: the collectives of one cluster. hetccl's own plans use three operations
// inside a cluster. Two take lists of shards, the same on all ranks; the classical collectives are
// the special cases that adaptors recognise:
//   reduce     with one shard per rank, equal and contiguous: reduce_scatter; with one shard:
//              rooted reduce
//   broadcast  with one shard per rank, equal and contiguous: all_gather; with one shard: broadcast
// Others become one group of rooted calls (ncclGroupStart ... ncclGroupEnd); a broadcast to one
// rank alone is a send and a receive. The third, `exchange`, takes a list of each rank's own
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

/// One piece of a reduce or broadcast. All ranks pass the same in the same order, but for `send`
/// and `recv`.
struct Shard {
  int root = 0;  ///< rank in the cluster's communicator
  const void* send =
      nullptr;  ///< reduce: this rank's contribution; broadcast: the data, read at the root alone
  void* recv =
      nullptr;  ///< reduce: the result, written at the root alone; broadcast: written everywhere
  size_t count = 0;  ///< elements; may be 0
  /// Broadcast: the one rank that receives, or -1: every rank does.
  int receiver = -1;
  /// On every rank this shard's memory (reduce: `send`; broadcast: `recv`) begins where that of the
  /// shard before it ends: what lies so may go in one call of the vendor's.
  bool follows = false;
};
// In place: `recv == send` is allowed in every shard.

/// InvalidArgument where a root or receiver is none of the cluster's ranks.
Status check_ranks(std::span<const Shard> shards, int n_ranks);

/// One message between this rank and `peer`, which may be this rank. Each rank lists its own sends
/// and its own receives.
struct Transfer {
  int peer = 0;          ///< rank in the cluster's communicator
  bool send = false;     ///< to `peer`; else this rank receives from `peer`
  void* data = nullptr;  ///< a send reads it, a receive writes it
  size_t count = 0;      ///< elements; 0: no message, and the peer may leave it out
};

/// InvalidArgument where a peer is none of the cluster's ranks, or where the messages that `rank`
/// sends to itself are not those that it receives from itself.
Status check_transfers(std::span<const Transfer> transfers, int n_ranks, int rank);

/// Opaque bytes that start a communicator: made by the cluster's first rank, carried to the others
/// by the bootstrap.
struct UniqueId {
  uint8_t bytes[128] = {};
};

/// Two ranks of a cluster, by their numbers in it, that called different operations.
struct Disagreement {
  uint64_t number = 0;  ///< the caller's, of the first call in which they differ
  int rank = 0, other = 0;
};

/// A cluster's communicator, or that of a pair of its ranks. Enqueueing calls return at once; every
/// rank issues the same calls in the same order. Calls from one thread at a time. What goes wrong
/// later shows in `async_error`.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// The caller's number of the operation to which the calls that follow belong. All ranks number
  /// their operations alike. An adaptor that compares calls compares these too.
  virtual void number_calls(uint64_t number) { static_cast<void>(number); }
  /// How the collectives that follow are to run, as far as `tactics` has it: alike on all ranks.
  virtual void set_tactic(const Tactic& tactic) { static_cast<void>(tactic); }
  /// What `set_tactic` may ask for; nullopt where the library cannot be told.
  [[nodiscard]] virtual std::optional<Tactics> tactics() const { return std::nullopt; }
  /// recv[i] = op over ranks of send[i]; Avg divides by the number of ranks, PreMulSum multiplies
  /// this rank's elements by `how.factor`, in the precision in which it adds (base/reduce.h).
  virtual Status all_reduce(const void* send, void* recv, size_t count, DataType type,
                            const Reducer& how, void* stream) = 0;
  /// The same by a caller that will wait, on a stream that is empty: true where it is complete on
  /// return, since the others called at the same time; else it goes on on `stream`.
  virtual Result<bool> all_reduce_at_once(const void* send, void* recv, size_t count, DataType type,
                                          const Reducer& how, void* stream) {
    HETCCL_TRY(all_reduce(send, recv, count, type, how, stream));
    return false;
  }
  virtual Status reduce(std::span<const Shard> shards, DataType type, const Reducer& how,
                        void* stream) = 0;
  virtual Status broadcast(std::span<const Shard> shards, DataType type, void* stream) = 0;
  /// Moves all messages of `transfers` at the same time, whatever their order in the list: no order
  /// deadlocks. Between two ranks, in one direction, the n-th send of a call meets the n-th receive
  /// of the matching call; both have the same count. No memory that the call writes overlaps other
  /// memory of the call, but that a message of a rank to itself may be received in place.
  ///
  /// Collective: every rank makes the call, at the same place among its calls and with the same
  /// type; a rank without messages passes an empty list. Unsupported unless
  /// `Library::supports_exchange`.
  virtual Status exchange(std::span<const Transfer> transfers, DataType type, void* stream);
  /// No rank's stream passes before every rank's has come.
  virtual Status barrier(void* stream) = 0;

  /// Tells the library of memory that later calls will use, so that they may read and write it
  /// directly: what `deregister_memory` takes, or null where nothing is registered.
  virtual Result<void*> register_memory(void* memory, size_t bytes) {
    static_cast<void>(memory), static_cast<void>(bytes);
    return nullptr;
  }
  /// No call uses the memory any more.
  virtual Status deregister_memory(void* registration) {
    static_cast<void>(registration);
    return {};
  }

  /// The first failure of enqueued work, e.g. ranks that called different operations (InvalidUsage
  /// says which).
  [[nodiscard]] virtual Status async_error() const = 0;
  /// The ranks that called different operations, where `async_error` is about that and the adaptor
  /// knows them.
  [[nodiscard]] virtual std::optional<Disagreement> disagreement() const { return std::nullopt; }
  /// Ends all enqueued work in bounded time, its results undefined. Does not block. Thread-safe,
  /// callable at any time.
  virtual void abort() = 0;
  /// After `abort`: whether work that starts from now on is ended, too. Before that, streams must
  /// not be let go: what they would feed the library could complete on other ranks, with success.
  /// Thread-safe.
  [[nodiscard]] virtual bool abort_has_begun() { return true; }
  /// Non-null when peers advance it through shared memory and the engine may sleep meanwhile.
  [[nodiscard]] virtual ShmSource* shm_source() = 0;
};

/// One end of a pair: two ranks of a cluster that only exchange messages.
struct PairSeat {
  UniqueId id;
  int rank = 0;    ///< 0 or 1
  int blocks = 0;  ///< thread blocks that its kernels take at most, the same at both ends
};

/// A pair's communicator that is being made. Destroyed, it gives up. Calls from one thread at a
/// time.
class PendingPair {
 public:
  using Made = Result<std::unique_ptr<Communicator>>;
  virtual ~PendingPair() = default;
  /// Empty while it is being made: ask again after `wake` (Library::begin_pair), and at `again`,
  /// which this only makes earlier. Does not block. Null: other work of a device kept the two ranks
  /// from meeting there, which at another time it may not. The other rank may have got a
  /// communicator then.
  virtual std::optional<Made> poll(TimePoint now, TimePoint& again) = 0;
};

/// Which ranks of one vendor and version a library joins.
struct Reach {
  bool hosts = true;           ///< those of several hosts
  bool architectures = false;  ///< those whose devices differ in architecture
};

/// How many thread blocks a communicator's kernels take; 0: as the library chooses.
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
  /// Whether it reduces elements of `type` by `op`. Data that only moves may be of any type.
  [[nodiscard]] virtual bool supports(DataType type, RedOp op) const = 0;
  /// Whether its communicators have `exchange`.
  [[nodiscard]] virtual bool supports_exchange() const { return false; }
  /// Whether it has `begin_pair`.
  [[nodiscard]] virtual bool makes_pairs() const { return false; }
  [[nodiscard]] virtual Reach reach() const = 0;
  /// Whether a broadcast's shard may name its receiver.
  [[nodiscard]] virtual bool sends() const { return true; }
  /// On the first rank of a cluster of `n_ranks`, within `limit`.
  virtual Result<UniqueId> unique_id(int n_ranks, const WaitLimit& limit) = 0;
  /// `id`, made here, will not be used: frees what its cluster would have met in.
  virtual void forget(const UniqueId& id) { static_cast<void>(id); }
  /// Collective over the cluster; blocks within `limit` for the other ranks. `waker` (may be
  /// null) wakes the engine that drives this rank; it must outlive the communicator.
  virtual Result<std::unique_ptr<Communicator>> init(const UniqueId& id, int n_ranks, int rank,
                                                     Waker* waker, const WaitLimit& limit) = 0;
  /// The same of kernels with so many thread blocks; Unsupported where it cannot be told.
  virtual Result<std::unique_ptr<Communicator>> init_with_blocks(const UniqueId& id, int n_ranks,
                                                                 int rank, const Blocks& blocks,
                                                                 const WaitLimit& limit);
  /// Begins `init` for a pair, within `limit`; calls `wake`, by any thread, when there is something
  /// to `poll`. A rank may have many pairs, all waiting at once, and makes them in an order of its
  /// own: none may wait for another. A library runs one communicator's calls in order, also those
  /// on different streams, so that a message that waits would hold up the next.
  virtual Result<std::unique_ptr<PendingPair>> begin_pair(const PairSeat& seat, Waker* waker,
                                                          const WaitLimit& limit,
                                                          std::function<void()> wake);
};

}  // namespace hetccl::ccl
