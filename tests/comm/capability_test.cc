// What one rank cannot do is refused on every rank before the call is counted.
#include <doctest/doctest.h>

#include "comm/ranks.h"
#include "device/host/host_device.h"
#include "fake/fake_device.h"
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

// Ranks 0 and 1 reduce in their cluster, rank 2 is alone in its own. The adaptors of `lacking`
// are `without`, and all ranks refuse int16 because of it, in the words `why`.
void check_refusals(int lacking, Adaptors without, const std::string& why) {
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (int rank = 0; rank < 3; ++rank) {
    Config config;
    config.cluster = rank < 2 ? "A" : "B";
    Adaptors adaptors = rank == lacking ? std::move(without) : all_adaptors();
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

TEST_CASE("a type that one rank's device lacks is refused on all ranks, and others work") {
  auto device = std::move(fake::FakeDevice::create({.lacks = DataType::Int16})).value();
  check_refusals(2, adaptors_with(std::move(device)),
                 "rank 2 cannot reduce int16 by bxor: its device, fake asynchronous fake device, "
                 "has no kernel for this: use another type or operator, or host memory");
}

TEST_CASE("a type that one rank's library lacks is refused on all ranks, and others work") {
  const auto host = device::make_host_device();
  check_refusals(1, adaptors_without(DataType::Int16),
                 "rank 1 cannot reduce int16 by bxor: its cluster reduces by host 1, which lacks "
                 "this on " +
                     host->architecture() +
                     ": use another type or operator, or host memory, or give each rank its own "
                     "HETCCL_CLUSTER");
}

TEST_CASE("an encoding that one rank's device lacks is refused on all ranks") {
  Config config;
  config.init_timeout_ms = 20'000;
  config.wire = "int8";
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (const bool encodes : {true, false}) {
    auto device = std::move(fake::FakeDevice::create({.encodes = encodes})).value();
    runtimes.push_back(
        std::move(Runtime::create(config, adaptors_with(std::move(device)))).value());
  }
  const auto id = runtimes[0]->service().unique_id().value();
  on_all_ranks(2, [&](int rank) {
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = 2;
    const Status status =
        Communicator::create(*runtimes[static_cast<size_t>(rank)], id, options).status();
    CHECK(status.code() == Code::Unsupported);
    CHECK_MESSAGE(status.message().find("rank 1: this rank's device has kernels, but none that "
                                        "encode: unset HETCCL_WIRE") != std::string::npos,
                  status.message());
  });
}

}  // namespace
}  // namespace hetccl::comm
