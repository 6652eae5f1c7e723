// What one rank cannot do is refused on every rank before the call is counted.
#include <doctest/doctest.h>

#include <functional>

#include "comm/ranks.h"
#include "device/host/host_device.h"
#include "fake/forwarding_communicator.h"
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

// A library that adds up nothing.
class Mover : public fake::VendorLibrary {
 public:
  using VendorLibrary::VendorLibrary;
  [[nodiscard]] bool supports(DataType, RedOp) const override { return false; }
};

class FailingCommunicator : public fake::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  Status reduce(std::span<const ccl::Shard>, DataType, const Reducer&, void*) override {
    return error(Code::SystemError, "fake: no memory");
  }
};

// One whose reductions fail where ranks are together.
class Failing : public fake::VendorLibrary {
 public:
  using VendorLibrary::VendorLibrary;
  Result<std::unique_ptr<ccl::Communicator>> init(const ccl::UniqueId& id, int n_ranks, int rank,
                                                  Waker* waker, const WaitLimit& limit) override {
    auto made = VendorLibrary::init(id, n_ranks, rank, waker, limit);
    if (made.ok()) made.value() = std::make_unique<FailingCommunicator>(std::move(made).value());
    return made;
  }
};

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

// Three ranks, two of which are a cluster, whose libraries `make` makes.
std::vector<Status> join(const std::function<std::unique_ptr<ccl::Library>(
                             std::unique_ptr<ccl::Library> real, ccl::Reach reach)>& make) {
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (const char* label : {"A", "A", "B"}) {
    Config config;
    config.cluster = label;
    Adaptors adaptors = all_adaptors();
    adaptors.host.make_library = [host = adaptors.host, make](const auto& crew) {
      return make(host.make_library(crew), host.reach);
    };
    runtimes.push_back(std::move(Runtime::create(config, std::move(adaptors))).value());
  }
  const auto id = runtimes[0]->service().unique_id().value();
  std::vector<Status> told(3);
  on_all_ranks(3, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = 3;
    auto made = Communicator::create(*runtimes[r], id, options);
    told[r] = made.status();
    if (made.ok()) CHECK(made.value()->finish().ok());
  });
  return told;
}

TEST_CASE("a communicator needs no type in which its libraries add") {
  for (const bool none : {false, true}) {
    for (const Status& told : join([none](auto real, const auto& reach) {
           if (none) return std::unique_ptr<ccl::Library>(new Mover(std::move(real), reach));
           return std::unique_ptr<ccl::Library>(
               new fake::VendorLibrary(std::move(real), reach, DataType::Int32));
         })) {
      CHECK_MESSAGE(told.ok(), told.message());
    }
  }
}

TEST_CASE("a library that fails before the communicator is made is named on all ranks") {
  const auto told = join([](auto real, const auto& reach) {
    return std::unique_ptr<ccl::Library>(new Failing(std::move(real), reach));
  });
  for (const Status& status : told) {
    CHECK(status.code() == Code::SystemError);
    const std::string& text = status.message();
    CHECK_MESSAGE((text.find("rank 0: fake: no memory") != std::string::npos ||
                   text.find("rank 1: fake: no memory") != std::string::npos),
                  text);
  }
}

}  // namespace hetccl::comm
