// Collectives and messages of the C API: each function fills in a hetcclCall_t and starts it.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "capi/group.h"
#include "capi/process.h"
#include "capi/ranges.h"
#include "hetccl/hetccl.h"

namespace hetccl::capi {
namespace {

using comm::CollectiveArguments;
using comm::Communicator;
using exec::Layout;

static_assert(sizeof(size_t) == sizeof(uint64_t));

constexpr uint64_t kMost = uint64_t{1} << 60U;  // bounds the sum of a call's counts
// Size of the first release's struct: callers compiled against it pass no more.
constexpr size_t kFirstCallBytes = offsetof(hetcclCall_t, source) + sizeof(int*);
constexpr size_t kMostCalls = size_t{1} << 16U;  // bounds one hetcclStart

// Computes contiguous offsets into `packed` if the caller gives none. `packed` keeps its memory
// between calls.
Result<Layout> layout_of(const size_t* counts, const size_t* displs, size_t blocks,
                         const char* name, std::vector<uint64_t>& packed) {
  if (counts == nullptr) return null(name);
  const std::span<const uint64_t> lengths(counts, blocks);
  uint64_t total = 0;
  for (const uint64_t length : lengths) {
    if (length > kMost - total) {
      return error(ErrorCode::InvalidArgument, "%s: more than %llu elements together", name,
                   static_cast<unsigned long long>(kMost));
    }
    total += length;
  }
  if (displs != nullptr) return Layout{lengths, {displs, blocks}};
  packed.resize(blocks);
  std::exclusive_scan(lengths.begin(), lengths.end(), packed.begin(), uint64_t{0});
  return Layout{lengths, packed};
}

uint64_t sum_of(std::span<const uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

constexpr uint64_t kZero[] = {0};

Layout one_block(const uint64_t& count) {
  return {{&count, 1}, kZero};
}

// Sets the layouts of an uneven call. If one side has a block per rank, the other is this rank's
// own block.
Status set_layouts(const Communicator& self, const hetcclCall_t& call, CollectiveArguments& made) {
  // The layouts of the current call point into these.
  thread_local std::vector<uint64_t> packed_input, packed_output;
  const auto ranks = static_cast<size_t>(self.membership().n_ranks());
  const auto own = static_cast<size_t>(self.membership().rank());
  const auto input = [&] {
    return layout_of(call.sendcounts, call.sdispls, ranks, "sendcounts", packed_input);
  };
  const auto output = [&] {
    return layout_of(call.recvcounts, call.rdispls, ranks, "recvcounts", packed_output);
  };
  const Collective collective = made.signature.collective;
  const bool is_root = self.membership().rank() == call.root;
  const bool rooted = collective == Collective::Gather || collective == Collective::Scatter;
  const bool has_input = collective != Collective::AllGather && collective != Collective::Gather;
  const bool has_output =
      collective != Collective::ReduceScatter && collective != Collective::Scatter;
  if (has_input && (!rooted || is_root)) {
    HETCCL_ASSIGN(made.input, input());
  }
  if (has_output && (!rooted || is_root)) {
    HETCCL_ASSIGN(made.output, output());
  }
  if (!has_input) made.input = one_block(rooted ? call.count : made.output.counts[own]);
  if (!has_output) made.output = one_block(rooted ? call.count : made.input.counts[own]);
  if (collective == Collective::AllGather) made.signature.count = sum_of(made.output.counts);
  if (collective == Collective::ReduceScatter) made.signature.count = sum_of(made.input.counts);
  return {};
}

struct Kind {
  Collective collective;
  bool reduces = false, uneven = false;
};

// Indexed by hetcclFunction_t, up to the messages.
constexpr Kind kKinds[] = {{Collective::AllReduce, true},
                           {Collective::ReduceScatter, true},
                           {Collective::AllGather},
                           {Collective::Broadcast},
                           {Collective::Reduce, true},
                           {Collective::Gather},
                           {Collective::Scatter},
                           {Collective::AllToAll},
                           {Collective::Barrier},
                           {Collective::AllGather, false, true},
                           {Collective::ReduceScatter, true, true},
                           {Collective::Gather, false, true},
                           {Collective::Scatter, false, true},
                           {Collective::AllToAll, false, true}};
static_assert(std::size(kKinds) == hetcclCallSend);

exec::Message message_of(const hetcclCall_t& call) {
  const bool send = call.function == hetcclCallSend;
  const bool any = call.function == hetcclCallRecvAny;
  // Only a receive writes to a message's memory.
  return {.send = send,
          .peer = any ? exec::kAnyRank : std::max(call.root, exec::kAnyRank + 1),
          .data = send ? const_cast<void*>(call.sendbuff) : call.recvbuff,
          .type = narrow<DataType>(call.datatype),
          .count = call.count,
          .tag = call.tag,
          .source = any ? call.source : nullptr};
}

Status set_operator(Communicator& self, const hetcclCall_t& call, CollectiveArguments& made) {
  Signature& signature = made.signature;
  if (call.factor != nullptr) {
    if (!is_valid(signature.type)) return {};  // the check of all arguments reports it
    signature.op = RedOp::PreMulSum;
    std::memcpy(made.factor.element, call.factor, size_of(signature.type));
    return {};
  }
  HETCCL_ASSIGN(const auto how,
                self.dispatch().red_ops().find(static_cast<int>(call.op), signature.type));
  signature.op = how.op;
  made.factor = how.factor;
  return {};
}

Status set_arguments(Communicator& self, const hetcclCall_t& call, CollectiveArguments& made) {
  const Kind& kind = kKinds[call.function];
  made.signature = {.collective = kind.collective,
                    .type = narrow<DataType>(call.datatype),
                    .root = call.root,
                    .count = kind.uneven ? 0 : call.count,
                    .uneven = kind.uneven};
  made.send = call.sendbuff;
  made.recv = call.recvbuff;
  made.residual = call.residual;
  const bool keeps_loss = kind.reduces && !kind.uneven && kind.collective != Collective::Reduce;
  if (call.residual != nullptr && !keeps_loss) {
    return error(
        ErrorCode::InvalidArgument,
        "residual is given: all-reduces and reduce-scatters of even blocks alone have one");
  }
  if (call.factor != nullptr && !kind.reduces)
    return error(ErrorCode::InvalidArgument, "factor is given: reductions alone have one");
  if (kind.uneven) {
    HETCCL_TRY(self.dispatch().known());
    HETCCL_TRY(set_layouts(self, call, made));
  }
  return kind.reduces ? set_operator(self, call, made) : Status();
}

// Calls `use` with the arguments of a collective, or with a single message.
template <typename Use>
Status with_arguments(Communicator& self, const hetcclCall_t& call, const Use& use) {
  if (call.function < 0 || call.function > hetcclCallRecvAny) {
    return error(ErrorCode::InvalidArgument, "function %d is none that hetccl knows",
                 static_cast<int>(call.function));
  }
  if (call.function >= hetcclCallSend) {
    const exec::Message message = message_of(call);
    return use(std::span(&message, 1));
  }
  CollectiveArguments made;
  HETCCL_TRY(set_arguments(self, call, made));
  return use(std::as_const(made));
}

// The range that a profiler shows for a call: its name and its bytes.
Range range_of(const CollectiveArguments& call) {
  return {name_of(call.signature.collective), call.signature.count * size_of(call.signature.type)};
}
Range range_of(std::span<const exec::Message> one) {
  return {one.front().send ? "send" : "recv", one.front().count * size_of(one.front().type)};
}

// Starts the call; within a group, keeps it until the group's end.
hetcclResult_t make(const hetcclCall_t& call, hetcclComm_t comm, hetcclStream_t stream) {
  return with(comm, [&](Communicator& self) {
    return with_arguments(self, call, [&](const auto& arguments) -> Status {
      if (Group& group = Group::mine(); group.is_open()) {
        group.add(self, arguments, stream);
        return {};
      }
      const Range range = range_of(arguments);
      return self.dispatch().call(arguments, stream);
    });
  });
}

struct How {
  hetcclStream_t stream;
  int64_t timeout_ms;
};

Status check(const hetcclCall_t* calls, size_t n_calls, int64_t timeout_ms) {
  HETCCL_TRY(outside_group("hetcclStart"));
  if (calls == nullptr && n_calls > 0) return null("calls");
  if (n_calls > kMostCalls) {
    return error(ErrorCode::InvalidArgument, "n_calls is %zu: it must be at most %zu", n_calls,
                 kMostCalls);
  }
  if (n_calls > 0 && calls->size < kFirstCallBytes) {
    return error(ErrorCode::InvalidArgument, "calls->size is not sizeof(hetcclCall_t)");
  }
  if (timeout_ms < 0) return error(ErrorCode::InvalidArgument, "timeout_ms is negative");
  return {};
}

// Copies a caller's struct, which may be shorter or longer than this library's.
hetcclCall_t copy_of(const hetcclCall_t* calls, size_t i) {
  hetcclCall_t call{};
  const auto* const at = reinterpret_cast<const std::byte*>(calls) + i * calls->size;
  std::memcpy(&call, at, std::min(calls->size, sizeof call));
  return call;
}

Status start_one(Communicator& self, const hetcclCall_t& call, const How& how, hetcclWork_t* work) {
  return with_arguments(self, call, [&](const auto& arguments) -> Status {
    const Range range = range_of(arguments);
    const bool waits = work == nullptr;
    HETCCL_ASSIGN(const exec::Ticket ticket,
                  self.dispatch().start(arguments, {how.stream, how.timeout_ms, waits}));
    if (!waits) *work = {{ticket.number(), ticket.ends(), 0, 0}};
    return waits && self.dispatch().is_no_stream(how.stream) ? self.dispatch().complete(ticket)
                                                             : Status();
  });
}

// Messages come first, and collectives complete in order, so the first and the last ticket cover
// all.
Status start_several(Communicator& self, const hetcclCall_t* calls, size_t n_calls, const How& how,
                     hetcclWork_t* work) {
  Group group;
  for (size_t i = 0; i < n_calls; ++i) {
    const hetcclCall_t call = copy_of(calls, i);  // must live until it is added
    const Status added = with_arguments(self, call, [&](const auto& arguments) {
      group.add(self, arguments, how.stream);
      return Status();
    });
    HETCCL_TRY(added.with(format("no call was made: call %zu", i)));
  }
  std::vector<exec::Ticket> tickets;
  const Status status =
      group.make({"no call was made", how.timeout_ms, work == nullptr ? nullptr : &tickets});
  if (work != nullptr && !tickets.empty()) {
    const exec::Ticket &first = tickets.front(), &last = tickets.back();
    *work = {{first.number(), first.ends(), last.number(), last.ends()}};
  }
  return status;
}

bool is_done(const hetcclWork_t& work) {
  const uint64_t* const told = work.internal;
  return exec::Ticket(told[0], told[1]).done() && exec::Ticket(told[2], told[3]).done();
}

// A call from separate arguments; missing ones are zero.
struct Args : hetcclCall_t {
  Args(hetcclFunction_t which, hetcclDataType_t type, const void* send, void* recv, size_t n)
      : hetcclCall_t{} {
    function = which;
    datatype = type;
    sendbuff = send;
    recvbuff = recv;
    count = n;
  }
  Args& by(hetcclRedOp_t reduction) {
    op = reduction;
    return *this;
  }
  Args& at(int root_or_peer) {
    root = root_or_peer;
    return *this;
  }
  Args& sending(const size_t* counts, const size_t* displs) {
    sendcounts = counts;
    sdispls = displs;
    return *this;
  }
  Args& receiving(const size_t* counts, const size_t* displs) {
    recvcounts = counts;
    rdispls = displs;
    return *this;
  }
  Args& tagged(uint32_t with) {
    tag = with;
    return *this;
  }
};

// Makes a call whose residual belongs to the caller.
hetcclResult_t make_with_residual(Args call, void* residual, hetcclComm_t comm,
                                  hetcclStream_t stream) {
  call.residual = residual;
  if (residual != nullptr || call.count == 0) return make(call, comm, stream);
  return with(comm, [](Communicator&) { return null("residual"); });
}

}  // namespace
}  // namespace hetccl::capi

using hetccl::capi::Args;
using hetccl::capi::make;
using hetccl::capi::make_with_residual;
using hetccl::capi::null;

hetcclResult_t hetcclStart(const hetcclCall_t* calls, size_t n_calls, hetcclComm_t comm,
                           hetcclStream_t stream, int64_t timeout_ms, hetcclWork_t* work) {
  using namespace hetccl::capi;
  if (work != nullptr) *work = {};
  return with(comm, [&](hetccl::comm::Communicator& self) -> hetccl::Status {
    HETCCL_TRY(check(calls, n_calls, timeout_ms));
    const How how{stream, std::min(timeout_ms, kLongestTimeoutMs)};
    if (n_calls == 0) return {};
    return n_calls == 1 ? start_one(self, copy_of(calls, 0), how, work)
                        : start_several(self, calls, n_calls, how, work);
  });
}

hetcclResult_t hetcclWorkQuery(const hetcclWork_t* work) {
  using namespace hetccl::capi;
  if (work != nullptr && is_done(*work)) return hetcclSuccess;
  const auto result = finished([&] { return work == nullptr ? null("work") : check_fork(); });
  return result == hetcclSuccess ? hetcclInProgress : result;
}

hetcclResult_t hetcclWorkWait(const hetcclWork_t* work, int64_t timeout_ms) {
  using namespace hetccl::capi;
  return finished([&]() -> hetccl::Status {
    if (work == nullptr) return null("work");
    if (is_done(*work)) return {};
    HETCCL_ASSIGN(const auto runtime, hetccl::capi::runtime());
    auto& engine = runtime->engine();
    if (engine.wait([&] { return is_done(*work); }, deadline_of(engine.clock(), timeout_ms)))
      return {};
    return hetccl::error(hetccl::ErrorCode::Timeout, "the work did not complete within %lld ms",
                         static_cast<long long>(timeout_ms));
  });
}

hetcclResult_t hetcclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                               hetcclDataType_t datatype, hetcclRedOp_t op, hetcclComm_t comm,
                               hetcclStream_t stream) {
  return make(Args(hetcclCallAllReduce, datatype, sendbuff, recvbuff, count).by(op), comm, stream);
}

hetcclResult_t hetcclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                   hetcclDataType_t datatype, hetcclRedOp_t op, hetcclComm_t comm,
                                   hetcclStream_t stream) {
  return make(Args(hetcclCallReduceScatter, datatype, sendbuff, recvbuff, recvcount).by(op), comm,
              stream);
}

hetcclResult_t hetcclAllReduceWithResidual(const void* sendbuff, void* recvbuff, void* residual,
                                           size_t count, hetcclDataType_t datatype,
                                           hetcclRedOp_t op, hetcclComm_t comm,
                                           hetcclStream_t stream) {
  return make_with_residual(Args(hetcclCallAllReduce, datatype, sendbuff, recvbuff, count).by(op),
                            residual, comm, stream);
}

hetcclResult_t hetcclReduceScatterWithResidual(const void* sendbuff, void* recvbuff, void* residual,
                                               size_t recvcount, hetcclDataType_t datatype,
                                               hetcclRedOp_t op, hetcclComm_t comm,
                                               hetcclStream_t stream) {
  return make_with_residual(
      Args(hetcclCallReduceScatter, datatype, sendbuff, recvbuff, recvcount).by(op), residual, comm,
      stream);
}

hetcclResult_t hetcclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                               hetcclDataType_t datatype, hetcclComm_t comm,
                               hetcclStream_t stream) {
  return make(Args(hetcclCallAllGather, datatype, sendbuff, recvbuff, sendcount), comm, stream);
}

hetcclResult_t hetcclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                               hetcclDataType_t datatype, int root, hetcclComm_t comm,
                               hetcclStream_t stream) {
  return make(Args(hetcclCallBroadcast, datatype, sendbuff, recvbuff, count).at(root), comm,
              stream);
}

hetcclResult_t hetcclBcast(void* buff, size_t count, hetcclDataType_t datatype, int root,
                           hetcclComm_t comm, hetcclStream_t stream) {
  return hetcclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

hetcclResult_t hetcclReduce(const void* sendbuff, void* recvbuff, size_t count,
                            hetcclDataType_t datatype, hetcclRedOp_t op, int root,
                            hetcclComm_t comm, hetcclStream_t stream) {
  return make(Args(hetcclCallReduce, datatype, sendbuff, recvbuff, count).by(op).at(root), comm,
              stream);
}

hetcclResult_t hetcclGather(const void* sendbuff, void* recvbuff, size_t count,
                            hetcclDataType_t datatype, int root, hetcclComm_t comm,
                            hetcclStream_t stream) {
  return make(Args(hetcclCallGather, datatype, sendbuff, recvbuff, count).at(root), comm, stream);
}

hetcclResult_t hetcclScatter(const void* sendbuff, void* recvbuff, size_t count,
                             hetcclDataType_t datatype, int root, hetcclComm_t comm,
                             hetcclStream_t stream) {
  return make(Args(hetcclCallScatter, datatype, sendbuff, recvbuff, count).at(root), comm, stream);
}

hetcclResult_t hetcclAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                              hetcclDataType_t datatype, hetcclComm_t comm, hetcclStream_t stream) {
  return make(Args(hetcclCallAllToAll, datatype, sendbuff, recvbuff, count), comm, stream);
}

hetcclResult_t hetcclBarrier(hetcclComm_t comm, hetcclStream_t stream) {
  return make(Args(hetcclCallBarrier, hetcclInt8, nullptr, nullptr, 0), comm, stream);
}

hetcclResult_t hetcclAllGatherV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                const size_t* displs, hetcclDataType_t datatype, hetcclComm_t comm,
                                hetcclStream_t stream) {
  return make(
      Args(hetcclCallAllGatherV, datatype, sendbuff, recvbuff, 0).receiving(recvcounts, displs),
      comm, stream);
}

hetcclResult_t hetcclReduceScatterV(const void* sendbuff, const size_t* sendcounts,
                                    const size_t* displs, void* recvbuff, hetcclDataType_t datatype,
                                    hetcclRedOp_t op, hetcclComm_t comm, hetcclStream_t stream) {
  return make(Args(hetcclCallReduceScatterV, datatype, sendbuff, recvbuff, 0)
                  .by(op)
                  .sending(sendcounts, displs),
              comm, stream);
}

hetcclResult_t hetcclGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                             const size_t* recvcounts, const size_t* displs,
                             hetcclDataType_t datatype, int root, hetcclComm_t comm,
                             hetcclStream_t stream) {
  return make(Args(hetcclCallGatherV, datatype, sendbuff, recvbuff, sendcount)
                  .at(root)
                  .receiving(recvcounts, displs),
              comm, stream);
}

hetcclResult_t hetcclScatterV(const void* sendbuff, const size_t* sendcounts, const size_t* displs,
                              void* recvbuff, size_t recvcount, hetcclDataType_t datatype, int root,
                              hetcclComm_t comm, hetcclStream_t stream) {
  return make(Args(hetcclCallScatterV, datatype, sendbuff, recvbuff, recvcount)
                  .at(root)
                  .sending(sendcounts, displs),
              comm, stream);
}

hetcclResult_t hetcclAllToAllV(const void* sendbuff, const size_t* sendcounts,
                               const size_t* sdispls, void* recvbuff, const size_t* recvcounts,
                               const size_t* rdispls, hetcclDataType_t datatype, hetcclComm_t comm,
                               hetcclStream_t stream) {
  return make(Args(hetcclCallAllToAllV, datatype, sendbuff, recvbuff, 0)
                  .sending(sendcounts, sdispls)
                  .receiving(recvcounts, rdispls),
              comm, stream);
}

hetcclResult_t hetcclSend(const void* sendbuff, size_t count, hetcclDataType_t datatype, int peer,
                          hetcclComm_t comm, hetcclStream_t stream) {
  return hetcclSendTag(sendbuff, count, datatype, peer, 0, comm, stream);
}

hetcclResult_t hetcclRecv(void* recvbuff, size_t count, hetcclDataType_t datatype, int peer,
                          hetcclComm_t comm, hetcclStream_t stream) {
  return hetcclRecvTag(recvbuff, count, datatype, peer, 0, comm, stream);
}

hetcclResult_t hetcclSendTag(const void* sendbuff, size_t count, hetcclDataType_t datatype,
                             int peer, uint32_t tag, hetcclComm_t comm, hetcclStream_t stream) {
  return make(Args(hetcclCallSend, datatype, sendbuff, nullptr, count).at(peer).tagged(tag), comm,
              stream);
}

hetcclResult_t hetcclRecvTag(void* recvbuff, size_t count, hetcclDataType_t datatype, int peer,
                             uint32_t tag, hetcclComm_t comm, hetcclStream_t stream) {
  return make(Args(hetcclCallRecv, datatype, nullptr, recvbuff, count).at(peer).tagged(tag), comm,
              stream);
}

hetcclResult_t hetcclRecvAny(void* recvbuff, size_t count, hetcclDataType_t datatype, uint32_t tag,
                             int* source, hetcclComm_t comm, hetcclStream_t stream) {
  Args call(hetcclCallRecvAny, datatype, nullptr, recvbuff, count);
  call.source = source;
  return make(call.tagged(tag), comm, stream);
}
