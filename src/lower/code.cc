#include "lower/code.h"

#include <algorithm>

namespace hetccl::lower {
namespace {

using Unit = OpcodeInfo::Unit;
using Takes = OpcodeInfo::Operands;

constexpr uint8_t kTimed = OpcodeInfo::kTraced;
constexpr uint8_t kCall = OpcodeInfo::kTraced | OpcodeInfo::kCollective;
constexpr uint8_t kAdds = OpcodeInfo::kTraced | OpcodeInfo::kReduces;
constexpr uint8_t kHeader = OpcodeInfo::kTraced | OpcodeInfo::kMessage;
constexpr uint8_t kBytes = kHeader | OpcodeInfo::kMovesBytes;
// Indexed by opcode.
constexpr OpcodeInfo kTable[] = {
    {"acquire", Unit::Any, Takes::None},
    {"wait", Unit::Any, Takes::Sync},
    {"signal", Unit::Stream, Takes::Sync},
    {"reserve", Unit::Stream, Takes::Message},
    {"locate", Unit::Stream, Takes::Message},
    {"acknowledge", Unit::Wire, Takes::Message},
    {"fill_identity", Unit::Stream, Takes::Dst},
    {"copy", Unit::Stream, Takes::SrcDst, kTimed},
    {"reduce", Unit::Stream, Takes::SrcDst, kAdds},
    {"host_reduce", Unit::Stream, Takes::SrcDst, kAdds | OpcodeInfo::kByHost},
    {"ccl_reduce", Unit::Stream, Takes::Shards, kCall | OpcodeInfo::kReduces},
    {"ccl_broadcast", Unit::Stream, Takes::Shards, kCall},
    {"ccl_all_reduce", Unit::Stream, Takes::SrcDst, kCall | OpcodeInfo::kReduces},
    {"ccl_exchange", Unit::Stream, Takes::Transfers, kCall},
    {"ccl_barrier", Unit::Stream, Takes::None, kCall},
    {"send", Unit::Wire, Takes::Src, kBytes},
    {"send_header", Unit::Wire, Takes::Src, kHeader},
    {"recv", Unit::Wire, Takes::Dst, kBytes},
    {"recv_header", Unit::Wire, Takes::Dst, kHeader},
    {"finish", Unit::Stream, Takes::None},
};
static_assert(std::size(kTable) == kOpcodes);

const char* name_of(QueueKind kind) {
  constexpr const char* kNames[] = {"user", "ccl",  "work", "out",
                                    "in",   "send", "recv", "acknowledge"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

const OpcodeInfo& info_of(Opcode opcode) {
  return kTable[static_cast<size_t>(opcode)];
}

Issue Walk::at(const Code& code, std::span<const uint32_t> queue, uint32_t n_slices) {
  if (time_ == 0 && place_ < queue.size() && queue[place_] < code.body) return {0, queue[place_]};
  for (; time_ < n_slices + code.last_lag; ++time_, place_ = 0) {
    for (; place_ < queue.size(); ++place_) {
      const uint32_t index = queue[place_], lag = code.list[index].lag;
      if (code.in_body(index) && time_ >= lag && time_ - lag < n_slices) {
        return {time_ - lag, index};
      }
    }
  }
  return {0, kEnd};
}

bool Code::runs_on_user_stream() const {
  return std::all_of(list.begin() + body, list.begin() + epilogue, [](const Instruction& one) {
    return !is_stream(one.queue) || one.queue == stream_queue(QueueKind::User);
  });
}

void index_lanes(Code& code) {
  for (LaneCode& lane : code.lanes)
    for (std::vector<uint32_t>& list : lane.by_kind) list.clear();
  for (uint32_t i = 0; i < code.epilogue; ++i) {
    const QueueId queue = code.list[i].queue;
    if (!is_stream(queue)) code.lanes[lane_of(queue)].of(kind_of(queue)).push_back(i);
  }
}

std::string name_of(const Code& code, QueueId queue) {
  if (is_stream(queue)) return name_of(kind_of(queue));
  const int peer = code.lanes[lane_of(queue)].peer;
  switch (kind_of(queue)) {
    case QueueKind::Send:
      return format("send to rank %d", peer);
    case QueueKind::Recv:
      return format("recv from rank %d", peer);
    default:
      return format("acknowledge to rank %d", peer);
  }
}

std::string describe(const Code& code, uint32_t index) {
  const Instruction& one = code.list[index];
  return format("instruction %u (%s, step %u, queue %s)", index, info_of(one.op).name,
                unsigned{one.step}, name_of(code, one.queue).c_str());
}

}  // namespace hetccl::lower
