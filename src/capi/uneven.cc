// The C API's collectives over blocks of any lengths.
#include <numeric>
#include <vector>

#include "capi/group.h"
#include "capi/process.h"
#include "hetccl/hetccl.h"

using hetccl::Code;
using hetccl::Collective;
using hetccl::DataType;
using hetccl::error;
using hetccl::Result;
using hetccl::Signature;
using hetccl::Status;
using hetccl::capi::narrow;
using hetccl::capi::null;
using hetccl::capi::submit;
using hetccl::capi::submit_reduction;
using hetccl::capi::with;
using hetccl::comm::CollectiveArguments;
using hetccl::comm::Communicator;
using hetccl::exec::Layout;

namespace {

static_assert(sizeof(size_t) == sizeof(uint64_t));

constexpr uint64_t kMost = uint64_t{1} << 60U;  // of all counts of a call together

// Fills `packed` where the caller leaves out where blocks begin: it keeps its memory from call to
// call.
Result<Layout> layout_of(const size_t* counts, const size_t* displs, size_t blocks,
                         const char* name, std::vector<uint64_t>& packed) {
  if (counts == nullptr) return null(name);
  const std::span<const uint64_t> lengths(counts, blocks);
  uint64_t total = 0;
  for (const uint64_t length : lengths) {
    if (length > kMost - total) {
      return error(Code::InvalidArgument, "%s: more than %llu elements together", name,
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

// Offsets that the layouts of one call point into.
struct Packed {
  std::vector<uint64_t> input, output;
};
Packed& packed() {
  thread_local Packed mine;
  return mine;
}

constexpr uint64_t kZero[] = {0};

Layout one_block(const uint64_t& count) {
  return {{&count, 1}, kZero};
}

Signature uneven(Collective collective, hetcclDataType_t datatype, int root = 0) {
  return {
      .collective = collective, .type = narrow<DataType>(datatype), .root = root, .uneven = true};
}

}  // namespace

hetcclResult_t hetcclAllGatherV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                const size_t* displs, hetcclDataType_t datatype, hetcclComm_t comm,
                                hetcclStream_t stream) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.known());
    CollectiveArguments call{uneven(Collective::AllGather, datatype), sendbuff, recvbuff};
    HETCCL_ASSIGN(call.output, layout_of(recvcounts, displs, static_cast<size_t>(self.n_ranks()),
                                         "recvcounts", packed().output));
    call.signature.count = sum_of(call.output.counts);
    call.input = one_block(call.output.counts[static_cast<size_t>(self.rank())]);
    return submit(self, call, stream);
  });
}

hetcclResult_t hetcclReduceScatterV(const void* sendbuff, const size_t* sendcounts,
                                    const size_t* displs, void* recvbuff, hetcclDataType_t datatype,
                                    hetcclRedOp_t op, hetcclComm_t comm, hetcclStream_t stream) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.known());
    CollectiveArguments call{uneven(Collective::ReduceScatter, datatype), sendbuff, recvbuff};
    HETCCL_ASSIGN(call.input, layout_of(sendcounts, displs, static_cast<size_t>(self.n_ranks()),
                                        "sendcounts", packed().input));
    call.signature.count = sum_of(call.input.counts);
    call.output = one_block(call.input.counts[static_cast<size_t>(self.rank())]);
    return submit_reduction(self, op, call, stream);
  });
}

hetcclResult_t hetcclGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                             const size_t* recvcounts, const size_t* displs,
                             hetcclDataType_t datatype, int root, hetcclComm_t comm,
                             hetcclStream_t stream) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.known());
    CollectiveArguments call{uneven(Collective::Gather, datatype, root), sendbuff, recvbuff};
    call.input = one_block(sendcount);
    if (self.rank() == root) {
      HETCCL_ASSIGN(call.output, layout_of(recvcounts, displs, static_cast<size_t>(self.n_ranks()),
                                           "recvcounts", packed().output));
    }
    return submit(self, call, stream);
  });
}

hetcclResult_t hetcclScatterV(const void* sendbuff, const size_t* sendcounts, const size_t* displs,
                              void* recvbuff, size_t recvcount, hetcclDataType_t datatype, int root,
                              hetcclComm_t comm, hetcclStream_t stream) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.known());
    CollectiveArguments call{uneven(Collective::Scatter, datatype, root), sendbuff, recvbuff};
    call.output = one_block(recvcount);
    if (self.rank() == root) {
      HETCCL_ASSIGN(call.input, layout_of(sendcounts, displs, static_cast<size_t>(self.n_ranks()),
                                          "sendcounts", packed().input));
    }
    return submit(self, call, stream);
  });
}

hetcclResult_t hetcclAllToAllV(const void* sendbuff, const size_t* sendcounts,
                               const size_t* sdispls, void* recvbuff, const size_t* recvcounts,
                               const size_t* rdispls, hetcclDataType_t datatype, hetcclComm_t comm,
                               hetcclStream_t stream) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.known());
    const auto ranks = static_cast<size_t>(self.n_ranks());
    CollectiveArguments call{uneven(Collective::AllToAll, datatype), sendbuff, recvbuff};
    HETCCL_ASSIGN(call.input, layout_of(sendcounts, sdispls, ranks, "sendcounts", packed().input));
    HETCCL_ASSIGN(call.output,
                  layout_of(recvcounts, rdispls, ranks, "recvcounts", packed().output));
    return submit(self, call, stream);
  });
}
