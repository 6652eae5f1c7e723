// What one rank cannot do is refused on every rank before the call is counted.
#include <doctest/doctest.h>

#include "comm/ranks.h"
#include "device/host/host_device.h"
#include "fake/vendor_library.h"

namespace hetccl::comm {
namespace {

constexpr size_t kCount = 64;

// A call of one rank on `kCount` elements, all of whose bytes are 0 before it.
Status call(Communicator& communicator, device::Device& device, const Signature& signature) {
  const size_t bytes = kCount * 8 * static_cast<size_t>(communicator.n_ranks());
  HETCCL_ASSIGN(auto* memory, device.allocate(2 * bytes));
  auto* half = static_cast<std::byte*>(memory) + bytes;
  Status status = communicator.call({signature, memory, half}, nullptr);
  device.free(memory);
  return status;
}

Adaptors adaptors_without(DataType type) {
  Adaptors adaptors = all_adaptors();
  adaptors.host.make_library = [host = adaptors.host, type](const auto& crew) {
    return std::make_unique<fake::VendorLibrary>(host.make_library(crew), host.reach, type);
  };
  return adaptors;
}

}  // namespace

TEST_CASE("a type that one rank's library lacks is refused on all ranks, and others work") {
  // Ranks 0 and 1 reduce in their cluster, rank 2 is alone in its own.
  const std::string why =
      "rank 1 cannot reduce int16 by bxor: its cluster reduces by host 1, which "
      "lacks this on " +
      device::make_host_device()->architecture() +
      ": use another type or operator, or host memory, or give each rank its own "
      "HETCCL_CLUSTER";
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (int rank = 0; rank < 3; ++rank) {
    Config config;
    config.cluster = rank < 2 ? "A" : "B";
    Adaptors adaptors = rank == 1 ? adaptors_without(DataType::Int16) : all_adaptors();
    runtimes.push_back(std::move(Runtime::create(config, std::move(adaptors))).value());
  }
  const auto id = runtimes[0]->service().unique_id().value();
  on_all_ranks(3, [&](int rank) {
    Runtime& runtime = *runtimes[static_cast<size_t>(rank)];
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = 3;
    auto made = Communicator::create(runtime, id, options);
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    Communicator& communicator = *made.value();
    device::Device& device = *runtime.device("").value();
    const auto reduce = [&](Collective collective, DataType type, RedOp op) {
      return call(communicator, device, {collective, type, op, 0, kCount});
    };
    for (const Collective one : {Collective::AllReduce, Collective::ReduceScatter}) {
      const Status status = reduce(one, DataType::Int16, RedOp::Bxor);
      CHECK(status.code() == Code::Unsupported);
      CHECK_MESSAGE(status.message().ends_with(why), status.message());
    }
    CHECK(communicator.statistics().operations == 0);
    CHECK(reduce(Collective::AllReduce, DataType::Uint16, RedOp::Bxor).ok());
    CHECK(reduce(Collective::AllReduce, DataType::Float32, RedOp::Avg).ok());
    CHECK(reduce(Collective::AllGather, DataType::Int16, RedOp::Sum).ok());
    CHECK(communicator.statistics().operations == 3);
    CHECK(communicator.finish().ok());
  });
}

}  // namespace hetccl::comm
