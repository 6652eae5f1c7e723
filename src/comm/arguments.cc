#include "comm/arguments.h"

#include <algorithm>

#include "plan/call.h"

namespace hetccl::comm {

namespace {

constexpr uint64_t kMaxElements = uint64_t{1} << 59U;  // of 8 bytes

// The elements of a buffer, from its first block's to its last one's end.
struct Extent {
  uint64_t begin = 0, end = 0;
  uint64_t own = 0;  // where the block of this rank begins
  [[nodiscard]] bool empty() const { return begin == end; }
};

Result<Extent> extent_of(const exec::Layout& layout, const char* name, uint32_t own) {
  Extent extent{UINT64_MAX, 0, 0};
  for (size_t block = 0; block < layout.counts.size(); ++block) {
    const uint64_t count = layout.counts[block], offset = layout.offsets[block];
    if (count > kMaxElements || offset > kMaxElements) {
      return error(Code::InvalidArgument, "%scounts[%zu] is %llu at displacement %llu: too large",
                   name, block, static_cast<unsigned long long>(count),
                   static_cast<unsigned long long>(offset));
    }
    if (count == 0) continue;
    extent.begin = std::min(extent.begin, offset);
    extent.end = std::max(extent.end, offset + count);
  }
  if (extent.begin > extent.end) extent.begin = extent.end = 0;
  if (own < layout.offsets.size()) extent.own = layout.offsets[own];
  return extent;
}

// What a rank sends to itself it gets from itself.
Status check_own_block(const CollectiveArguments& arguments, uint32_t own) {
  const auto& sent = arguments.input.counts;
  const auto& received = arguments.output.counts;
  const uint64_t out = sent[sent.size() > 1 ? own : 0];
  const uint64_t in = received[received.size() > 1 ? own : 0];
  if (out == in) return {};
  return error(Code::InvalidArgument,
               "%llu elements are sent to this rank itself, and %llu received",
               static_cast<unsigned long long>(out), static_cast<unsigned long long>(in));
}

Extent even_extent(uint64_t blocks, uint64_t count, uint32_t own) {
  return {0, blocks * count, blocks > 1 ? own * count : 0};
}

}  // namespace

Status check(const CollectiveArguments& arguments, int rank, int n_ranks) {
  const Signature& call = arguments.signature;
  const auto ranks = static_cast<uint32_t>(n_ranks), own = static_cast<uint32_t>(rank);
  HETCCL_TRY(plan::check(call, ranks));
  Extent sent, received;
  if (call.uneven) {
    HETCCL_ASSIGN(sent, extent_of(arguments.input, "send", own));
    HETCCL_ASSIGN(received, extent_of(arguments.output, "recv", own));
  } else {
    sent = even_extent(plan::send_blocks(call.collective, ranks), call.count, own);
    received = even_extent(plan::recv_blocks(call.collective, ranks), call.count, own);
  }
  const bool both = plan::sends(call, rank) && plan::receives(call, rank);
  if (call.uneven && both) HETCCL_TRY(check_own_block(arguments, own));
  if (!plan::sends(call, rank)) sent = {};
  if (!plan::receives(call, rank)) received = {};
  const bool lacks_recv = !received.empty() && arguments.recv == nullptr;
  if (lacks_recv || (!sent.empty() && arguments.send == nullptr)) {
    return error(Code::InvalidArgument, "%s is null but count is %llu",
                 lacks_recv ? "recvbuff" : "sendbuff",
                 static_cast<unsigned long long>((lacks_recv ? received : sent).end));
  }
  if (sent.empty() || received.empty()) return {};
  const uint64_t width = size_of(call.type);
  const auto* send = static_cast<const std::byte*>(arguments.send);
  const auto* recv = static_cast<const std::byte*>(arguments.recv);
  const bool in_place = call.collective != Collective::AllToAll &&
                        send + sent.own * width == recv + received.own * width;
  if (!in_place && send + sent.begin * width < recv + received.end * width &&
      recv + received.begin * width < send + sent.end * width) {
    return error(Code::InvalidArgument, call.collective == Collective::AllToAll
                                            ? "sendbuff and recvbuff overlap: keep them apart"
                                            : "sendbuff and recvbuff overlap: keep them apart, or "
                                              "use the in-place form");
  }
  return {};
}

uint64_t elements_of_a_block(const CollectiveArguments& arguments, int n_ranks) {
  const Signature& call = arguments.signature;
  return call.uneven ? call.count / static_cast<uint64_t>(n_ranks) : call.count;
}

}  // namespace hetccl::comm
