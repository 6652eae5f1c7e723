#include "comm/arguments.h"

#include <algorithm>
#include <vector>

#include "plan/call.h"

namespace hetccl::comm {

namespace {

// A receive from any rank makes a channel to every rank.
constexpr int kMostSenders = 256;
constexpr uint64_t kMaxElements = uint64_t{1} << 59U;  // of 8 bytes

// The elements of a buffer, from the start of its first block to the end of its last.
struct Extent {
  uint64_t begin = 0, end = 0;
  uint64_t own = 0;  // start of this rank's block
  [[nodiscard]] bool empty() const { return begin == end; }
};

Result<Extent> extent_of(const exec::Layout& layout, const char* name, uint32_t own) {
  Extent extent{UINT64_MAX, 0, 0};
  for (size_t block = 0; block < layout.counts.size(); ++block) {
    const uint64_t count = layout.counts[block], offset = layout.offsets[block];
    if (count > kMaxElements || offset > kMaxElements) {
      return error(ErrorCode::InvalidArgument,
                   "%scounts[%zu] is %llu at displacement %llu: too large", name, block,
                   static_cast<unsigned long long>(count), static_cast<unsigned long long>(offset));
    }
    if (count == 0) continue;
    extent.begin = std::min(extent.begin, offset);
    extent.end = std::max(extent.end, offset + count);
  }
  if (extent.begin > extent.end) extent.begin = extent.end = 0;
  if (own < layout.offsets.size()) extent.own = layout.offsets[own];
  return extent;
}

// Checks that this rank sends to itself as many elements as it receives from itself.
Status check_own_block(const CollectiveArguments& arguments, uint32_t own) {
  const auto& sent = arguments.input.counts;
  const auto& received = arguments.output.counts;
  const uint64_t out = sent[sent.size() > 1 ? own : 0];
  const uint64_t in = received[received.size() > 1 ? own : 0];
  if (out == in) return {};
  return error(ErrorCode::InvalidArgument,
               "%llu elements are sent to this rank itself, and %llu received",
               static_cast<unsigned long long>(out), static_cast<unsigned long long>(in));
}

// Checks that the n-th message that a rank sends itself matches the n-th that it receives from
// itself.
Status check_own_messages(std::span<const exec::Message> messages, int rank) {
  std::vector<const exec::Message*> sent, received;
  for (const exec::Message& message : messages) {
    if (message.peer == rank) (message.send ? sent : received).push_back(&message);
  }
  if (sent.size() != received.size()) {
    return error(ErrorCode::InvalidUsage,
                 "%zu messages to this rank itself, %zu from it: put both ends of each into one "
                 "group",
                 sent.size(), received.size());
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i]->count == received[i]->count && sent[i]->type == received[i]->type) continue;
    return error(ErrorCode::InvalidArgument, "%s meets %s", describe(*sent[i]).c_str(),
                 describe(*received[i]).c_str());
  }
  return {};
}

// Kernels read and write the residual during the call, so it must not share memory with a buffer.
Status check_residual(const CollectiveArguments& arguments, uint64_t elements, uint64_t received) {
  const uint64_t width = size_of(arguments.signature.type);
  const auto* residual = static_cast<const std::byte*>(arguments.residual);
  if (reinterpret_cast<uintptr_t>(residual) % width != 0) {
    return error(ErrorCode::InvalidArgument, "residual is %p: it must be aligned to %llu bytes",
                 arguments.residual, static_cast<unsigned long long>(width));
  }
  const auto overlaps = [&](const void* buffer, uint64_t count) {
    const auto* begin = static_cast<const std::byte*>(buffer);
    return residual < begin + count * width && begin < residual + elements * width;
  };
  const bool sent = overlaps(arguments.send, elements);
  if (!sent && !overlaps(arguments.recv, received)) return {};
  return error(ErrorCode::InvalidArgument, "residual and %s overlap: keep them apart",
               sent ? "sendbuff" : "recvbuff");
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
  const bool sends = plan::sends(call.collective, call.root, rank);
  const bool receives = plan::receives(call.collective, call.root, rank);
  if (call.uneven && sends && receives) HETCCL_TRY(check_own_block(arguments, own));
  if (!sends) sent = {};
  if (!receives) received = {};
  const bool lacks_recv = !received.empty() && arguments.recv == nullptr;
  if (lacks_recv || (!sent.empty() && arguments.send == nullptr)) {
    return error(ErrorCode::InvalidArgument, "%s is null but count is %llu",
                 lacks_recv ? "recvbuff" : "sendbuff",
                 static_cast<unsigned long long>((lacks_recv ? received : sent).end));
  }
  if (sent.empty() || received.empty()) return {};
  if (arguments.residual != nullptr) {
    HETCCL_TRY(check_residual(arguments, sent.end, received.end));
  }
  const uint64_t width = size_of(call.type);
  const auto* send = static_cast<const std::byte*>(arguments.send);
  const auto* recv = static_cast<const std::byte*>(arguments.recv);
  const bool in_place = call.collective != Collective::AllToAll &&
                        send + sent.own * width == recv + received.own * width;
  if (!in_place && send + sent.begin * width < recv + received.end * width &&
      recv + received.begin * width < send + sent.end * width) {
    return error(ErrorCode::InvalidArgument,
                 call.collective == Collective::AllToAll
                     ? "sendbuff and recvbuff overlap: keep them apart"
                     : "sendbuff and recvbuff overlap: keep them apart, or "
                       "use the in-place form");
  }
  return {};
}

Status check(std::span<const exec::Message> messages, int rank, int n_ranks) {
  for (const exec::Message& message : messages) {
    if (!is_valid(message.type)) {
      return error(ErrorCode::InvalidArgument, "datatype %d is none that hetccl knows",
                   static_cast<int>(message.type));
    }
    const bool any = message.peer == exec::kAnyRank && !message.send;
    if (any && (n_ranks < 2 || n_ranks > kMostSenders)) {
      return error(ErrorCode::Unsupported,
                   "in a communicator of %d ranks no receive is from any rank: it takes 2 to %d; "
                   "name the rank that sends",
                   n_ranks, kMostSenders);
    }
    if (!any && (message.peer < 0 || message.peer >= n_ranks)) {
      return error(ErrorCode::InvalidArgument, "peer is %d: it must be from 0 to %d", message.peer,
                   n_ranks - 1);
    }
    if (message.count > kMaxElements) {
      return error(ErrorCode::InvalidArgument, "count %llu is too large",
                   static_cast<unsigned long long>(message.count));
    }
    if (message.count > 0 && message.data == nullptr) {
      return error(ErrorCode::InvalidArgument, "%s is null but count is %llu",
                   message.send ? "sendbuff" : "recvbuff",
                   static_cast<unsigned long long>(message.count));
    }
  }
  return check_own_messages(messages, rank);
}

uint64_t elements_of_a_block(const CollectiveArguments& arguments, int n_ranks) {
  const Signature& call = arguments.signature;
  return call.uneven ? call.count / static_cast<uint64_t>(n_ranks) : call.count;
}

}  // namespace hetccl::comm
