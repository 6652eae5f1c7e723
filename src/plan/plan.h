// The plan IR. A plan is a small DAG over *one slice* of a collective, for one rank; counts are
// launch parameters. The same DAG runs for every slice, and exec pipelines the slices, so a plan's
// size does not depend on the message.
//
// Memory is seen as buffers of *blocks*: the output of all_gather, gather and all_to_all has one
// block per rank, so has the input of reduce_scatter, scatter and all_to_all, all others have one
// block. Blocks are as long as the call says, mostly all alike. Slice k covers elements [k*L,
// min((k+1)*L, count)) of every block at once, `count` being the block's elements. Scratch blocks
// hold one slice each, in as many slots as slices are in flight. A region is a part of one block's
// slice between two fractions of the slice's actual length, so it needs no clamping: equal
// fractions fall on equal elements on every rank whatever the length, 0 included (see `element`).
//
// Scratch blocks may form a *run*, which one message carries: each block of a run begins where the
// slice of the block before it ends, so a short slice leaves no gaps. Slices of a run's blocks are
// equally long, and its regions are whole blocks.
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

/// The element where `fraction` of a slice of `length` elements falls: floor(length*num/den)
/// rounded down to a multiple of `grain`, but `length` itself for 1. Monotonic, and a function of
/// the fraction's value alone.
[[nodiscard]] uint64_t element(Fraction fraction, uint64_t length, uint64_t grain);
/// Elements on which regions begin: 64 bytes, and a block of an encoding.
[[nodiscard]] uint64_t grain_of(DataType type, const Encoding& encoding = {});

enum class Buffer : uint8_t {
  Input,   ///< the caller's send buffer
  Output,  ///< the caller's receive buffer
  Scratch,
  Identity,  ///< what changes no sum: a rank's part of a CclReduce to which it adds nothing
};

/// The sources a Reduce has at most; longer ones are chained.
inline constexpr size_t kMaxReduceSources = 16;

struct Region {
  Buffer buffer = Buffer::Input;
  uint32_t block = 0;  ///< Identity: the input block of whose slice it is a part
  Fraction begin{0, 1}, end{1, 1};
  uint32_t of = 0;      ///< Scratch: the input block of whose slice it is a part
  uint32_t run = 0;     ///< Scratch: blocks of its run that come before it
  uint32_t blocks = 1;  ///< Scratch: it consists of so many blocks of its run, this one first
  /// Scratch: its elements are encoded, as all of its block's: a block of the encoding behind the
  /// other, from where the slice's first one lies.
  bool encoded = false;
};

/// Of so many elements from the beginning of an encoding's block.
[[nodiscard]] size_t bytes_of(uint64_t elements, DataType type, const Encoding& encoding,
                              bool encoded);

/// The part of one slice of a block that a region is: elements [begin, end) of `length`, which
/// begin at the block's element `first`.
struct SlicePart {
  uint64_t first = 0, length = 0, begin = 0, end = 0;
};
/// Of slice `k` of a block of `count` elements, cut into slices of `slice_elements`: nothing behind
/// its end. `grain`: see grain_of.
[[nodiscard]] SlicePart part_of(const Region& region, uint64_t count, uint64_t slice_elements,
                                uint32_t k, uint64_t grain);
/// The bytes of `region`, all of its blocks, with `part` of each.
[[nodiscard]] size_t bytes_of(const Region& region, const SlicePart& part, DataType type,
                              const Encoding& encoding);

/// The blocks of `region`, for people: "3", or "3..5".
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
           ///< ranks' number. Of one source that is encoded, or whose result is, a conversion.
  Copy,    ///< src -> dst, on this rank
};

/// "ccl_reduce", "send", …
[[nodiscard]] const char* name_of(StepKind kind);

/// One piece of a CclReduce or CclBroadcast: `root` and `receiver` are ranks of the cluster. As in
/// ccl::Shard, reduce writes `recv` at the root alone; broadcast reads `send` there alone and,
/// where it names a receiver, writes `recv` there alone. The other ranks' value of such a region is
/// ignored.
struct ShardRegion {
  int root = 0;
  Region send, recv;
  int receiver = -1;
};

/// Does the cluster's rank `local_rank` read `shard.send`, or write `shard.recv`?
[[nodiscard]] bool reads_send(StepKind kind, const ShardRegion& shard, int local_rank);
[[nodiscard]] bool writes_recv(StepKind kind, const ShardRegion& shard, int local_rank);

/// One message of a CclExchange between this rank and `peer`, a rank of the cluster that may be
/// this one. As in ccl::Transfer, each rank lists its own, and the n-th send to a rank meets that
/// rank's n-th receive from this one.
struct TransferRegion {
  int peer = 0;
  bool send = false;
  Region region;
};

/// One step of the DAG. What a kind does not name stays empty.
struct Step {
  StepKind kind{};
  uint16_t stage =
      0;  ///< place in the software pipeline (see schedule.h); both ends of a message agree
  std::vector<uint16_t>
      deps{};  ///< earlier steps of this plan that must be complete in the same slice
  std::vector<ShardRegion> shards{};
  std::vector<TransferRegion> transfers{};
  std::vector<Region> srcs{};  ///< Send, Copy, CclAllReduce: one; Reduce: at least one
  Region dst{};
  int peer = -1;         ///< global rank
  uint32_t message = 0;  ///< Send, Recv: the plan-wide number of the message, equal at both ends
  bool average = false;  ///< Reduce, or CclReduce/CclAllReduce of one cluster that holds all ranks
  /// Reduce, CclReduce, CclAllReduce: every source, of this rank's input, is multiplied by its
  /// factor, or for an average by a power of two (Divisor::down)
  bool scale = false;
  /// CclReduce: what ranks send lies elsewhere on each of them. Otherwise shards that lie in a row
  /// on one rank do so on all.
  bool apart = false;
  /// CclExchange: of whole blocks, once, in the first slice. Ranks that know only their own blocks
  /// cut the call into different numbers of slices.
  bool whole = false;
};

/// How a call is cut into slices.
enum class Slicing : uint8_t {
  Agreed,  ///< as many as the longest block wants, which all ranks know
  Fixed,   ///< equally long whatever the call: ranks know only the blocks that they send or receive
  None,    ///< one slice: there is nothing to pipeline
};

/// What one rank does for one collective. Steps are in an order that respects `deps`.
struct RankPlan {
  std::string name;  ///< the algorithm's id, for people
  std::vector<Step> steps;
  uint32_t scratch_blocks = 0;
  uint16_t stages = 1;
  Slicing slicing = Slicing::Agreed;
  uint32_t most_messages = 0;  ///< Fixed: of a slice, on the rank that has the most
  uint32_t input_blocks = 1, output_blocks = 1;
  Encoding encoding{};           ///< of what is encoded
  bool scales_averages = false;  ///< what `average` divides was scaled before
};

/// The plan as JSON, one line per step, for people and golden files.
[[nodiscard]] std::string to_json(const RankPlan& plan);

/// What is planned: the collective and its root, as ranks call it. The reduction and type do not
/// change a plan, except that an average asks for one division, a pre-multiplied sum for one
/// multiplication of every rank's input, and an average of floats over several clusters for both:
/// its sums cannot overflow then.
struct Spec {
  Collective collective{};
  int root = 0;          ///< broadcast, reduce, gather, scatter
  bool average = false;  ///< RedOp::Avg
  bool scale =
      false;  ///< RedOp::PreMulSum, or an average's inputs are scaled before they are added
  /// Steps before the clusters' libraries multiply, since not all libraries do.
  bool scale_apart = false;
  /// The id of a row of `algorithms()`, in static storage; empty: the first row that applies.
  std::string_view algorithm{};
  /// Gather, scatter, all-to-all whose blocks differ in length: ranks know their own blocks alone.
  bool uneven = false;
  /// Of what crosses between clusters.
  Encoding encoding{};
  auto operator<=>(const Spec&) const = default;
};

/// Agreed by all ranks; slices and depth are launch parameters of exec.
struct Choice {
  uint64_t slice_bytes = 0;  ///< of one block, a multiple of 64; of fixed slices the most
  uint32_t depth = 3;        ///< slices between a slice's first stage and its last
  bool operator==(const Choice&) const = default;
};

/// What a rank spends on a call, and what it asks of its vendor's library. Changes no Code. Ranks
/// need not agree, except on what they ask of a library: alike on all ranks of its communicator.
struct Resources {
  uint16_t tcp_streams = 0;   ///< of a channel, that carry messages; 0: all
  uint16_t gpu_blocks = 0;    ///< of a kernel that adds; 0: as many as the setting says
  uint16_t host_threads = 0;  ///< that add, of a rank of the host; 0: all that it has for this
  Tactic tactic = {};         ///< of the vendor's library in its own collectives
  bool operator==(const Resources&) const = default;
};

}  // namespace hetccl::plan
