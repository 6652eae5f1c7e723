// Code: the program that runs. `lower` makes it from a rank's plan, for one kind of call; exec
// interprets it, the verifier proves it, `hetccl plan --code` prints it.
//
// Code is a flat list of instructions. Each belongs to a queue, which starts its instructions in
// the list's order. The list has three sections: the prologue runs once, the body runs for every
// slice in the static order (plan/schedule.h), the epilogue runs once. The queues are the device's
// streams, and three per lane: sends, receives, and acknowledgements of reads. Streams complete
// their instructions in order. A lane starts its messages in order and completes them in order;
// each completion signals `Instruction::done`.
//
// Only syncs order instructions of different queues. A sync counts the slices for which it was
// signalled. Memory is symbolic: the call gives addresses and lengths.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace hetccl::lower {

enum class Opcode : uint8_t {
  Acquire,       ///< waits until the previous call has released these buffers
  Wait,          ///< waits for a sync
  Signal,        ///< increments a sync
  Reserve,       ///< takes a message's place in the ring; waits for credit, that is, until the
                 ///< reader has read the previous content
  Locate,        ///< finds a message's place in the ring
  Acknowledge,   ///< gives the writer credit: this rank has read a message in the ring
  FillIdentity,  ///< writes the operator's identity
  Copy,
  Reduce,      ///< dst = srcs[0] op srcs[1] op ..., left to right
  HostReduce,  ///< the same by the host, between copies, for a device that cannot do it
  CclReduce,
  CclBroadcast,
  CclAllReduce,
  CclExchange,
  CclBarrier,
  Send,
  SendHeader,  ///< sends only the header of a message whose data is in the ring
  Recv,
  RecvHeader,
  Finish,  ///< marks the end of the call on its stream: the last instruction of the call on any
           ///< stream
};
inline constexpr size_t kOpcodes = static_cast<size_t>(Opcode::Finish) + 1;

enum class QueueKind : uint8_t { User, Ccl, Work, Out, In, Send, Recv, Acknowledge };
using QueueId = uint16_t;
/// The device's streams: the user's, and one each for vendor calls, arithmetic, copies out and
/// copies in.
inline constexpr QueueId kStreams = 5;
[[nodiscard]] constexpr QueueId stream_queue(QueueKind kind) {
  return static_cast<QueueId>(kind);
}
[[nodiscard]] constexpr QueueId lane_queue(size_t lane, QueueKind kind) {
  return static_cast<QueueId>(kStreams + 3 * lane + static_cast<size_t>(kind) - kStreams);
}
[[nodiscard]] constexpr bool is_stream(QueueId queue) {
  return queue < kStreams;
}
[[nodiscard]] constexpr size_t lane_of(QueueId queue) {
  return (queue - size_t{kStreams}) / 3;
}
[[nodiscard]] constexpr QueueKind kind_of(QueueId queue) {
  return is_stream(queue) ? static_cast<QueueKind>(queue)
                          : static_cast<QueueKind>(kStreams + (queue - kStreams) % 3);
}

/// Properties of an opcode, shared by printer, verifier, tracer and interpreter.
struct OpcodeInfo {
  const char* name;
  enum class Unit : uint8_t { Any, Stream, Wire } unit;
  enum class Operands : uint8_t {
    None,
    Sync,
    Message,
    SrcDst,
    Dst,
    Shards,
    Transfers,
    Src
  } operands;
  uint8_t traits = 0;  ///< bits of Trait
  enum Trait : uint8_t {
    kCollective = 1U << 0U,  ///< a call of the cluster's library, which all its ranks make in the
                             ///< same order
    kTraced = 1U << 1U,      ///< takes time that a trace shows
    kMovesBytes = 1U << 2U,  ///< the operand's bytes travel through the transport
    kReduces = 1U << 3U,     ///< combines elements: of each shard, every rank's part is read and
                             ///< the root's is written. Without this trait the root's is read and
                             ///< every rank's is written
    kMessage = 1U << 4U,     ///< a message of a lane
    kByHost = 1U << 5U,      ///< uses Memory::Host
  };
  [[nodiscard]] bool is(Trait trait) const { return (traits & trait) != 0; }
};
[[nodiscard]] const OpcodeInfo& info_of(Opcode opcode);

enum class Memory : uint8_t {
  Input,
  Output,
  Scratch,
  Identity,
  Staging,  ///< pinned memory between the device and the transport, one place per message and slot,
            ///< with as many blocks as the message
  Ring,     ///< a place in the window that both ends share
  Host,     ///< pinned memory for the host's arithmetic: one place that the steps of a call share
};

/// A piece of memory, in the slice that its instruction runs for.
struct Operand {
  Memory memory = Memory::Input;
  plan::Region region{};  ///< the length; in Input, Output, Scratch and Identity also the place
  uint16_t message = 0;   ///< Staging, Ring: the message whose place it is
};

/// The same as plan::ShardRegion.
struct Shard {
  int root = 0;
  Operand send, recv;
  int receiver = -1;
};

/// The same as plan::TransferRegion.
struct Transfer {
  int peer = 0;
  bool send = false;
  Operand operand;
};

using SyncId = uint16_t;
inline constexpr SyncId kNoSync = std::numeric_limits<SyncId>::max();
inline constexpr SyncId kStarted = 0;   ///< the user's stream has reached the call
inline constexpr SyncId kFinished = 1;  ///< `Finish` has run

struct Instruction {
  Opcode op{};
  QueueId queue = 0;
  uint16_t stage = 0;
  uint16_t step = 0;  ///< the plan step that it comes from
  uint32_t lag = 0;   ///< slice k starts at time k + lag
  SyncId sync = kNoSync;
  uint32_t back = 0;  ///< Wait: waits for slice k - back; does not wait while k < back
  uint16_t message = 0;
  /// Send, Recv and their headers: signalled on completion. On streams: the word that a Signal
  /// right behind it signals.
  SyncId done = kNoSync;
  std::vector<Operand> srcs{};
  Operand dst{};
  std::vector<Shard> shards{};
  std::vector<Transfer> transfers{};
  bool average = false, scale = false, apart = false, whole = false;  ///< as plan::Step
};

/// Memory that an instruction of the host uses besides its operands.
inline constexpr Operand kHostPlace{.memory = Memory::Host};

/// Calls `visit(operand, writes, place)` for each region that `code` reads or writes on the
/// cluster's rank `local_rank`. Effects with the same `place` are element-wise: element i is read
/// before it is written, so the output may alias the input.
template <typename Visit>
void for_each_effect(const Instruction& code, int local_rank, Visit&& visit) {
  for (size_t i = 0; i < code.shards.size(); ++i) {
    const Shard& shard = code.shards[i];
    const bool reduces = info_of(code.op).is(OpcodeInfo::kReduces);
    const bool root = shard.root == local_rank;
    const bool receives = shard.receiver < 0 || shard.receiver == local_rank;
    if (reduces || root) visit(shard.send, false, i);
    if (reduces ? root : receives) visit(shard.recv, true, i);
  }
  // A rank's n-th message to itself may be in place: the send and its receive get the same `place`.
  size_t own_sends = code.transfers.size(), own_receives = own_sends;
  for (size_t i = 0; i < code.transfers.size(); ++i) {
    const Transfer& transfer = code.transfers[i];
    size_t& own = transfer.send ? own_sends : own_receives;
    visit(transfer.operand, !transfer.send, transfer.peer == local_rank ? own++ : i);
  }
  for (const Operand& src : code.srcs) visit(src, false, size_t{0});
  using Operands = OpcodeInfo::Operands;
  const Operands operands = info_of(code.op).operands;
  if (operands == Operands::SrcDst || operands == Operands::Dst) visit(code.dst, true, size_t{0});
  if (info_of(code.op).is(OpcodeInfo::kByHost)) visit(kHostPlace, true, size_t{1});
}

/// Calls `visit(operand)` for every operand of `code`, including those that only other ranks read
/// or write.
template <typename Visit>
void for_each_operand(const Instruction& code, Visit&& visit) {
  for (const Shard& shard : code.shards) visit(shard.send), visit(shard.recv);
  for (const Transfer& transfer : code.transfers) visit(transfer.operand);
  for (const Operand& src : code.srcs) visit(src);
  visit(code.dst);
}

/// Counts slices: a word that hosts and devices can access, or an event if it orders streams of one
/// device.
struct Sync {
  bool event = false;
  bool once = false;  ///< signalled once per call, not per slice
  uint16_t step = 0;  ///< the plan step whose completion it signals
};

/// A message of a lane: carries a step's region in each slice.
struct LaneMessage {
  bool sends = false;
  uint16_t lane = 0;
  uint16_t step = 0;
  uint32_t number = 0;    ///< in all ranks' plans, equal at both ends
  uint32_t staged = 0;    ///< first block of its place in a staging slot
  plan::Region region{};  ///< the data that it carries
};

/// The instructions for the lane to one peer: by queue, the indices of the prologue's and the
/// body's instructions.
struct LaneCode {
  int peer = -1;
  std::array<std::vector<uint32_t>, 3> by_kind{};

  [[nodiscard]] std::vector<uint32_t>& of(QueueKind kind) {
    return by_kind[static_cast<size_t>(kind) - kStreams];
  }
  [[nodiscard]] const std::vector<uint32_t>& of(QueueKind kind) const {
    return by_kind[static_cast<size_t>(kind) - kStreams];
  }
};

/// An instruction, and the slice to run it for.
struct Issue {
  uint32_t slice = 0, index = 0;
};

struct Code {
  std::vector<Instruction> list;
  uint32_t body = 0, epilogue = 0;  ///< indices of the sections' first instructions
  std::vector<Sync> syncs;
  std::vector<LaneMessage> messages;
  std::vector<LaneCode> lanes;
  uint32_t n_slots = 1;           ///< slots of scratch and staging memory, one per slice in flight
  uint32_t last_lag = 0;          ///< largest lag in the body
  uint32_t scratch_blocks = 0;    ///< per slot
  uint32_t staged_blocks = 0;     ///< staging blocks per slot
  uint32_t host_reduces = 0;      ///< number of HostReduce instructions
  uint32_t host_sources = 0;      ///< most sources of a HostReduce
  bool uses_identity = false;     ///< has FillIdentity
  bool one_library_call = false;  ///< the call is one call of the cluster's library
  bool rotates = false;           ///< uses buffers that calls take in turn, not its own
  /// Each message ends with its own block: it does not travel in later slices, whose syncs are
  /// signalled once it has ended. (An empty message travels in the first slice.)
  bool fixed_slices = false;
  bool registered = false;       ///< moves memory that must be registered with the transports
  bool scales_averages = false;  ///< the same as in plan::RankPlan
  bool brief = false;            ///< one slice, moving so little that a launch takes longer

  [[nodiscard]] bool in_body(uint32_t index) const { return index >= body && index < epilogue; }
  /// Whether the whole body runs on the user's stream, in one order. If so, a graph that records it
  /// needs no flags.
  [[nodiscard]] bool runs_on_user_stream() const;
};

/// Iterates over some instructions of a Code in the static order. `queue` holds their indices:
/// first the prologue's, then the body's, which run for `n_slices`.
class Walk {
 public:
  /// Returns the current issue; at the end one with `index` `kEnd`.
  Issue at(const Code& code, std::span<const uint32_t> queue, uint32_t n_slices);
  void advance() { ++place_; }

 private:
  uint32_t time_ = 0, place_ = 0;
};
inline constexpr uint32_t kEnd = UINT32_MAX;

/// A part of the order in which a launch enqueues instructions.
struct Part {
  enum class Section : uint8_t { Prologue, Body, Epilogue } section{};
  uint32_t time = 0;  ///< in Body: time in the static order, below `n_slices + last_lag`
};

/// Calls `visit(Issue)` for the instructions of a part; stops at the first error.
template <typename Visit>
Status for_each_issue(const Code& code, uint32_t n_slices, Part part, Visit&& visit) {
  if (part.section == Part::Section::Body) {
    for (uint32_t i = code.body; i < code.epilogue; ++i) {
      const uint32_t lag = code.list[i].lag;
      const bool runs = part.time >= lag && part.time - lag < n_slices;
      if (runs) HETCCL_TRY(visit(Issue{part.time - lag, i}));
    }
    return {};
  }
  const bool first = part.section == Part::Section::Prologue;
  const uint32_t end = first ? code.body : static_cast<uint32_t>(code.list.size());
  for (uint32_t i = first ? 0 : code.epilogue; i < end; ++i) {
    HETCCL_TRY(visit(Issue{first ? 0 : n_slices - 1, i}));
  }
  return {};
}

/// Calls `visit(Issue)` for all instructions in the order in which a launch enqueues them; stops at
/// the first error.
template <typename Visit>
Status for_each_issue(const Code& code, uint32_t n_slices, Visit&& visit) {
  HETCCL_TRY(for_each_issue(code, n_slices, Part{Part::Section::Prologue}, visit));
  for (uint32_t time = 0; time < n_slices + code.last_lag; ++time) {
    HETCCL_TRY(for_each_issue(code, n_slices, Part{Part::Section::Body, time}, visit));
  }
  return for_each_issue(code, n_slices, Part{Part::Section::Epilogue}, visit);
}

/// Fills the lists in `lanes`. To be called after `list` has changed.
void index_lanes(Code& code);

/// For messages: "user", "send to rank 5".
[[nodiscard]] std::string name_of(const Code& code, QueueId queue);
[[nodiscard]] std::string describe(const Code& code, uint32_t index);
/// JSON, one line per instruction.
[[nodiscard]] std::string to_json(const Code& code);

}  // namespace hetccl::lower
