// Code: the program that runs. `lower` makes it from a rank's plan, for one kind of call; exec
// interprets it, the verifier proves it, `hetccl plan --code` prints it.
//
// Code is a flat list of instructions. Each belongs to a queue, which starts its instructions in
// the list's order. The list has three sections: the prologue runs once, the body runs for every
// slice in the static order (plan/schedule.h), the epilogue runs once. Queues are the device's
// streams, and three for each lane: messages sent, messages received, reads acknowledged. Streams
// complete their instructions in order. A lane starts its messages in order, and they complete in
// order; `Instruction::done` is signalled when one completes.
//
// Instructions of different queues are ordered by syncs alone: a sync counts the slices in which it
// was signalled. Memory is symbolic: addresses and lengths are the call's.
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
  Acquire,      ///< waits until the call that had these buffers before has released them
  Wait,         ///< waits for a sync
  Signal,       ///< counts a sync up
  Reserve,      ///< takes a message's place in the ring; waits for credit: that the reader has read
                ///< what lay there
  Locate,       ///< finds a message's place in the ring
  Acknowledge,  ///< gives the writer credit: this rank has read a message in the ring
  FillIdentity,  ///< writes the operator's identity
  Copy,
  Reduce,      ///< dst = srcs[0] op srcs[1] op ..., left to right
  HostReduce,  ///< the same by the host, between copies, for a device that cannot
  CclReduce,
  CclBroadcast,
  CclAllReduce,
  CclExchange,
  CclBarrier,
  Send,
  SendHeader,  ///< the message's data are in the ring: its header alone travels
  Recv,
  RecvHeader,
  Finish,  ///< tells that the call has ended on its stream: the last of what streams do for it
};
inline constexpr size_t kOpcodes = static_cast<size_t>(Opcode::Finish) + 1;

enum class QueueKind : uint8_t { User, Ccl, Work, Out, In, Send, Recv, Acknowledge };
using QueueId = uint16_t;
/// The device's streams: the user's, and those for vendor calls, arithmetic, copies out and in.
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

/// Properties of an opcode that printer, verifier, tracer and interpreter share.
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
  uint8_t traits = 0;  ///< of Trait
  enum Trait : uint8_t {
    kCollective = 1U << 0U,  ///< a call of the cluster's library: all its ranks make it, in order
    kTraced = 1U << 1U,      ///< it takes time that a trace shows
    kMovesBytes = 1U << 2U,  ///< its operand's bytes travel through the transport
    kReduces = 1U << 3U,     ///< it combines elements: of each shard every part is read, and the
                             ///< root's is written; without it the root's is read, and all
                             ///< ranks' are written
    kMessage = 1U << 4U,     ///< it is a message of a lane
    kByHost = 1U << 5U,      ///< it works in Memory::Host
  };
  [[nodiscard]] bool is(Trait trait) const { return (traits & trait) != 0; }
};
[[nodiscard]] const OpcodeInfo& info_of(Opcode opcode);

enum class Memory : uint8_t {
  Input,
  Output,
  Scratch,
  Identity,
  Staging,  ///< pinned memory between the device and the transport, one place a message and slot,
            ///< of as many blocks as the message
  Ring,     ///< a place in the window that both ends share
  Host,     ///< where the host computes: pinned, one place that a call's steps use by turns
};

/// A piece of memory, in the slice in which its instruction runs.
struct Operand {
  Memory memory = Memory::Input;
  plan::Region region{};  ///< its length; in Input, Output, Scratch and Identity also its place
  uint16_t message = 0;   ///< Staging, Ring: of which message
};

/// As plan::ShardRegion.
struct Shard {
  int root = 0;
  Operand send, recv;
  int receiver = -1;
};

/// As plan::TransferRegion.
struct Transfer {
  int peer = 0;
  bool send = false;
  Operand operand;
};

using SyncId = uint16_t;
inline constexpr SyncId kNoSync = std::numeric_limits<SyncId>::max();
inline constexpr SyncId kStarted = 0;   ///< the user's stream has come to the call
inline constexpr SyncId kFinished = 1;  ///< `Finish` has run

struct Instruction {
  Opcode op{};
  QueueId queue = 0;
  uint16_t stage = 0;
  uint16_t step = 0;  ///< of the plan, from which it comes
  uint32_t lag = 0;   ///< it starts slice k at time k + lag
  SyncId sync = kNoSync;
  uint32_t back = 0;  ///< Wait: for slice k - back; no wait while k < back
  uint16_t message = 0;
  /// Send, Recv and their headers: signalled on completion. On streams: what a Signal behind it
  /// signals, if that is a word.
  SyncId done = kNoSync;
  std::vector<Operand> srcs{};
  Operand dst{};
  std::vector<Shard> shards{};
  std::vector<Transfer> transfers{};
  bool average = false, scale = false, apart = false, whole = false;  ///< as plan::Step
};

/// What an instruction of the host works in, beside its operands.
inline constexpr Operand kHostPlace{.memory = Memory::Host};

/// Calls `visit(operand, writes, place)` for what `code` reads and writes on the cluster's rank
/// `local_rank`. Of one place, elements are read and written one by one: a write may be in place of
/// a read.
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
  // The n-th message of a rank to itself may be received in place.
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

/// Calls `visit(operand)` for every operand of `code`, those of other ranks' effects included.
template <typename Visit>
void for_each_operand(const Instruction& code, Visit&& visit) {
  for (const Shard& shard : code.shards) visit(shard.send), visit(shard.recv);
  for (const Transfer& transfer : code.transfers) visit(transfer.operand);
  for (const Operand& src : code.srcs) visit(src);
  visit(code.dst);
}

/// A count of slices, kept as a word that hosts and devices reach, or, between streams of one
/// device, as an event.
struct Sync {
  bool event = false;
  bool once = false;  ///< signalled once per call, not per slice
  uint16_t step = 0;  ///< the plan step whose end it signals
};

/// A message of a lane: a step's region travels so in each slice.
struct LaneMessage {
  bool sends = false;
  uint16_t lane = 0;
  uint16_t step = 0;
  uint32_t number = 0;    ///< plan-wide, equal at both ends
  uint32_t staged = 0;    ///< where it begins in a slot of staging memory, in blocks
  plan::Region region{};  ///< what it carries
};

/// What a Code has for the lane to one peer: by queue, the indices of the prologue's and the body's
/// instructions.
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

/// An instruction and the slice for which it runs.
struct Issue {
  uint32_t slice = 0, index = 0;
};

struct Code {
  std::vector<Instruction> list;
  uint32_t body = 0, epilogue = 0;  ///< where the sections begin
  std::vector<Sync> syncs;
  std::vector<LaneMessage> messages;
  std::vector<LaneCode> lanes;
  uint32_t n_slots = 1;           ///< of scratch and staging memory: slices in flight
  uint32_t last_lag = 0;          ///< of the body
  uint32_t scratch_blocks = 0;    ///< of each slot
  uint32_t staged_blocks = 0;     ///< of each slot of staging memory
  uint32_t host_reduces = 0;      ///< HostReduce instructions
  uint32_t host_sources = 0;      ///< the most that one of them has
  bool uses_identity = false;     ///< has FillIdentity
  bool one_library_call = false;  ///< on the user's stream, of the cluster's library: all of it
  bool rotates = false;           ///< works in buffers that calls take by turns; else in its own
  /// Each message ends with its own block: in later slices it does not travel, and its syncs are
  /// signalled for these once it has ended. (One of nothing travels in the first slice.)
  bool fixed_slices = false;
  bool registered = false;       ///< it moves memory that transports must know
  bool scales_averages = false;  ///< as plan::RankPlan
  bool brief = false;            ///< one slice, which moves so little that a launch takes longer

  [[nodiscard]] bool in_body(uint32_t index) const { return index >= body && index < epilogue; }
  /// Whether its body is all on the user's stream, in one order: a graph that records it needs no
  /// flags.
  [[nodiscard]] bool runs_on_user_stream() const;
};

/// A place in the static order of some of a Code's instructions, `queue` being their indices: the
/// prologue's, then the body's for `n_slices`.
class Walk {
 public:
  /// The issue where it stands, or nothing at the end: `index` is then `kEnd`.
  Issue at(const Code& code, std::span<const uint32_t> queue, uint32_t n_slices);
  void advance() { ++place_; }

 private:
  uint32_t time_ = 0, place_ = 0;
};
inline constexpr uint32_t kEnd = UINT32_MAX;

/// A part of the order in which a launch enqueues instructions.
struct Part {
  enum class Section : uint8_t { Prologue, Body, Epilogue } section{};
  uint32_t time = 0;  ///< of the body, in the static order: below `n_slices + last_lag`
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

/// Fills `lanes`' lists; after the list has changed.
void index_lanes(Code& code);

/// "user", "send to rank 5": for people.
[[nodiscard]] std::string name_of(const Code& code, QueueId queue);
[[nodiscard]] std::string describe(const Code& code, uint32_t index);
/// As JSON, one line an instruction.
[[nodiscard]] std::string to_json(const Code& code);

}  // namespace hetccl::lower
