// The plan IR. A plan is a small DAG over *one slice* of a collective, for one rank; counts are
// launch parameters. The same DAG runs for every slice, and exec pipelines the slices, so a plan's
// size does not depend on the message.
//
// Buffers consist of *blocks*. The output of all_gather, gather and all_to_all has one block per
// rank, as has the input of reduce_scatter, scatter and all_to_all; all other buffers are one
// block. The call gives the blocks' lengths, which are mostly equal. Slice k covers elements [k*L,
// min((k+1)*L, count)) of every block at once, where `count` is the block's number of elements.
// Scratch blocks hold one slice each, in as many slots as slices are in flight. A region is the
// part of one block's slice between two fractions of the slice's actual length, so it needs no
// clamping: equal fractions give equal elements on every rank, for any length including 0 (see
// `element`).
//
// Scratch blocks may form a *run*, which one message carries: each block of a run begins where the
// slice of the block before it ends, so a short slice leaves no gaps. The slices of a run's blocks
// have equal lengths, and its regions are whole blocks.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tactic.h"
#include "base/types.h"
#include "topology/topology.h"

namespace hetccl::plan {

/// num/den of a slice, 0 <= num <= den. Compared by value: 1/2 == 2/4.
struct Fraction {
  uint32_t num = 0;
  uint32_t den = 1;
};
[[nodiscard]] bool operator==(Fraction a, Fraction b);
[[nodiscard]] bool operator<(Fraction a, Fraction b);

/// "0", "1", "2/3".
[[nodiscard]] std::string text_of(Fraction fraction);

/// The element at `fraction` of a slice of `length` elements: floor(length*num/den), rounded down
/// to a multiple of `grain`; `length` itself for 1. Monotonic, and the same for equal fractions.
[[nodiscard]] uint64_t element(Fraction fraction, uint64_t length, uint64_t grain);
/// Alignment of regions in elements: 64 bytes, and a whole block of an encoding.
[[nodiscard]] uint64_t grain_of(DataType type, const Encoding& encoding = {});

enum class Buffer : uint8_t {
  Input,   ///< the caller's send buffer
  Output,  ///< the caller's receive buffer
  Scratch,
  Identity,  ///< the operator's identity: this rank's part of a CclReduce to which it adds nothing
};

/// Most sources of a Reduce; longer lists are chained.
inline constexpr size_t kMaxReduceSources = 16;

struct Region {
  Buffer buffer = Buffer::Input;
  uint32_t block = 0;  ///< Identity: the input block that gives its length
  Fraction begin{0, 1}, end{1, 1};
  uint32_t of = 0;      ///< Scratch: the input block that gives its length
  uint32_t run = 0;     ///< Scratch: its index in its run
  uint32_t blocks = 1;  ///< Scratch: number of consecutive blocks of its run, this one first
  /// Scratch: holds encoded elements, as does its whole block. The slice's encoded blocks follow
  /// each other, beginning where the slice's first element would be.
  bool encoded = false;
};

/// Bytes of `elements` elements that begin at a block of the encoding.
[[nodiscard]] size_t bytes_of(uint64_t elements, DataType type, const Encoding& encoding,
                              bool encoded);

/// A region within one slice of a block: elements [begin, end) of the slice's `length`, which
/// begins at the block's element `first`.
struct SlicePart {
  uint64_t first = 0, length = 0, begin = 0, end = 0;
};
/// The part of slice `k`, for a block of `count` elements in slices of `slice_elements`. Empty
/// beyond the block's end. `grain`: see grain_of.
[[nodiscard]] SlicePart part_of(const Region& region, uint64_t count, uint64_t slice_elements,
                                uint32_t k, uint64_t grain);
/// Bytes of all blocks of `region`, with `part` of each.
[[nodiscard]] size_t bytes_of(const Region& region, const SlicePart& part, DataType type,
                              const Encoding& encoding);

/// The blocks of `region` as text: "3" or "3..5".
[[nodiscard]] std::string blocks_of(const Region& region);

enum class StepKind : uint8_t {
  CclReduce,     ///< ccl::Communicator::reduce over `shards`
  CclBroadcast,  ///< ccl::Communicator::broadcast over `shards`
  CclAllReduce,  ///< ccl::Communicator::all_reduce, `src` -> `dst`
  CclExchange,   ///< ccl::Communicator::exchange of `transfers`
  CclBarrier,
  Send,    ///< `src` to `peer`
  Recv,    ///< `dst` from `peer`
  Reduce,  ///< dst = srcs[0] op srcs[1] op ..., left to right; `average` divides the sum by the
           ///< number of ranks. With one source, if it or dst is encoded: a conversion.
  Copy,    ///< src -> dst, on this rank
};

/// "ccl_reduce", "send", …
[[nodiscard]] const char* name_of(StepKind kind);

/// One piece of a CclReduce or CclBroadcast; `root` and `receiver` are ranks of the cluster. As in
/// ccl::Shard, reduce writes `recv` only at the root. Broadcast reads `send` only at the root, and
/// writes `recv` only at the receiver if there is one. On other ranks that region is ignored.
struct ShardRegion {
  int root = 0;
  Region send, recv;
  int receiver = -1;
};

/// Whether the cluster's rank `local_rank` reads `shard.send`, or writes `shard.recv`.
[[nodiscard]] bool reads_send(StepKind kind, const ShardRegion& shard, int local_rank);
[[nodiscard]] bool writes_recv(StepKind kind, const ShardRegion& shard, int local_rank);

/// A message of a CclExchange between this rank and `peer`, a rank of the cluster, perhaps this
/// one. As in ccl::Transfer, each rank lists its own messages: the n-th send to a rank matches that
/// rank's n-th receive from this one.
struct TransferRegion {
  int peer = 0;
  bool send = false;
  Region region;
};

/// One step of the DAG. Fields that a kind does not use stay empty.
struct Step {
  StepKind kind{};
  uint16_t stage =
      0;  ///< place in the software pipeline (see schedule.h); equal at both ends of a message
  std::vector<uint16_t>
      deps{};  ///< earlier steps of this plan that must be complete in the same slice
  std::vector<ShardRegion> shards{};
  std::vector<TransferRegion> transfers{};
  std::vector<Region> srcs{};  ///< Send, Copy, CclAllReduce: one; Reduce: at least one
  Region dst{};
  int peer = -1;         ///< global rank
  uint32_t message = 0;  ///< Send, Recv: the message's number in the job, equal at both ends
  bool average = false;  ///< Reduce, or CclReduce/CclAllReduce in one cluster that holds all ranks
  /// Reduce, CclReduce, CclAllReduce: multiplies every source, which is this rank's input, by its
  /// factor; for an average by a power of two (Divisor::down).
  bool scale = false;
  /// CclReduce: ranks send from differently laid out regions. If false, shards that are adjacent on
  /// one rank are adjacent on all.
  bool apart = false;
  /// CclExchange: moves whole blocks, once, in the first slice, because ranks that know only their
  /// own blocks cut the call into different numbers of slices.
  bool whole = false;
};

/// The way a call is cut into slices.
enum class Slicing : uint8_t {
  Agreed,  ///< equal numbers of slices on all ranks, from the longest block, which all know
  Fixed,   ///< a fixed length, because ranks know only the blocks that they send or receive
  None,    ///< one slice: nothing to pipeline
};

/// One rank's steps for one collective, in an order that respects `deps`.
struct RankPlan {
  std::string name;  ///< the algorithm's id, for messages
  std::vector<Step> steps;
  uint32_t scratch_blocks = 0;
  uint16_t stages = 1;
  Slicing slicing = Slicing::Agreed;
  uint32_t most_messages = 0;  ///< Fixed: messages per slice of the rank that has the most
  uint32_t input_blocks = 1, output_blocks = 1;
  Encoding encoding{};           ///< of the regions that are encoded
  bool scales_averages = false;  ///< inputs were scaled before `average` divides
};

/// The plan as JSON, one line per step, for people and golden files.
[[nodiscard]] std::string to_json(const RankPlan& plan);

/// The properties of a call that decide its plan: the collective and its root, as ranks call it,
/// and the fields below. Type and reduction matter only here: an average needs one division, a
/// pre-multiplied sum one multiplication of every rank's input, and an average of floats over
/// several clusters both, so that its sums cannot overflow.
struct Spec {
  Collective collective{};
  int root = 0;          ///< broadcast, reduce, gather, scatter
  bool average = false;  ///< RedOp::Avg
  bool scale =
      false;  ///< RedOp::PreMulSum, or an average whose inputs are scaled before they are added
  /// Separate steps multiply ahead of the clusters' libraries, since not all libraries can.
  bool scale_apart = false;
  /// Id of a row of `algorithms()`, in static storage; empty: the first row that applies.
  std::string_view algorithm{};
  /// Gather, scatter and all-to-all with blocks of different lengths: ranks know only their own
  /// blocks.
  bool uneven = false;
  /// Applied to the data that crosses between clusters.
  Encoding encoding{};
  auto operator<=>(const Spec&) const = default;
};

/// Launch parameters that all ranks agree on.
struct Choice {
  uint64_t slice_bytes = 0;  ///< of one block, a multiple of 64; with fixed slices an upper bound
  uint32_t depth = 3;        ///< slices between the first and the last stage of a slice
  bool operator==(const Choice&) const = default;
};

/// Resources that a rank spends on a call, and requests to its vendor's library. They do not change
/// the Code. Ranks may differ, except in the requests: those are the same on all ranks of a vendor
/// communicator.
struct Resources {
  uint16_t tcp_streams = 0;   ///< streams of a channel that carry messages; 0: all
  uint16_t gpu_blocks = 0;    ///< of a kernel that adds; 0: as set
  uint16_t host_threads = 0;  ///< of a host rank that add; 0: all it has for this
  Tactic tactic = {};         ///< for the vendor's library's own collectives
  bool operator==(const Resources&) const = default;
};

}  // namespace hetccl::plan
