// What one rank cannot do is refused on every rank before the call is counted.
#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>

#include "comm/ranks.h"
#include "fake/fake_device.h"

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

TEST_CASE("a type that one rank's device lacks is refused on all ranks, and others work") {
  // Ranks 0 and 1 reduce in their cluster; rank 2, alone in its own, has no kernel for int16.
  const std::vector<std::string> labels = {"A", "A", "B"};
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (const std::string& label : labels) {
    Config config;
    config.cluster = label;
    std::unique_ptr<device::Device> device;
    if (label == "B") {
      device = std::move(fake::FakeDevice::create({.lacks = DataType::Int16})).value();
    }
    runtimes.push_back(std::move(Runtime::create(config, std::move(device))).value());
  }
  const auto id = runtimes[0]->service().unique_id().value();
  std::mutex mutex;
  std::vector<std::string> refusals;
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
    for (const RedOp op : {RedOp::Sum, RedOp::Bxor}) {
      for (const Collective one : {Collective::AllReduce, Collective::ReduceScatter}) {
        const Status status = reduce(one, DataType::Int16, op);
        CHECK(status.code() == Code::Unsupported);
        std::lock_guard lock(mutex);
        refusals.push_back(status.message().substr(status.message().find("rank 2 cannot")));
      }
    }
    CHECK(communicator.statistics().operations == 0);
    CHECK(reduce(Collective::AllReduce, DataType::Uint16, RedOp::Bxor).ok());
    CHECK(reduce(Collective::AllReduce, DataType::Float32, RedOp::Avg).ok());
    CHECK(reduce(Collective::AllGather, DataType::Int16, RedOp::Sum).ok());
    CHECK(communicator.statistics().operations == 3);
    CHECK(communicator.finish().ok());
  });
  REQUIRE(refusals.size() == 12);
  const std::string by_sum =
      "rank 2 cannot reduce int16 by sum: its device, fake asynchronous fake device, has no kernel "
      "for this: use another type or operator, or host memory";
  CHECK(std::count(refusals.begin(), refusals.end(), by_sum) == 6);
}

}  // namespace
}  // namespace hetccl::comm
