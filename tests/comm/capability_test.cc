// A call that one rank cannot do is refused on every rank before it is counted.
#include <doctest/doctest.h>

#include <functional>
#include <optional>

#include "comm/ranks.h"
#include "device/host/host_device.h"
#include "fake/forwarding_communicator.h"
#include "fake/vendor_library.h"

namespace hetccl::comm {
namespace {

constexpr size_t kCount = 64;

// A call of one rank on `kCount` elements, all of whose bytes are 0 before it.
Status call(Communicator& communicator, device::Device& device, const Signature& signature) {
  const size_t bytes = kCount * 8 * static_cast<size_t>(communicator.membership().n_ranks());
  HETCCL_ASSIGN(auto* memory, device.allocate(2 * bytes));
  auto* half = static_cast<std::byte*>(memory) + bytes;
  Status status = communicator.dispatch().call({signature, memory, half}, nullptr);
  device.free(memory);
  return status;
}

// The build's, but for a library of the host, which is made as Library(the real one, its reach,
// `more`...).
template <typename Library, typename... More>
Adaptors adaptors_by(More... more) {
  Adaptors adaptors = all_adaptors();
  adaptors.host.make_library = [host = adaptors.host, more...](const auto& crew) {
    return std::make_unique<Library>(host.make_library(crew), host.reach, more...);
  };
  return adaptors;
}

// Ranks 0 and 1 reduce in their cluster, rank 2 is alone in its own: each with its adaptors, and
// `body` with what it gets.
void on_two_clusters(
    const std::vector<Adaptors>& adaptors,
    const std::function<void(Runtime&, Result<std::shared_ptr<Communicator>>)>& body) {
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (const Adaptors& one : adaptors) {
    Config config;
    config.cluster = runtimes.size() < 2 ? "A" : "B";
    runtimes.push_back(std::move(Runtime::create(config, one)).value());
  }
  const auto id = runtimes[0]->service().unique_id().value();
  const int n_ranks = static_cast<int>(adaptors.size());
  on_all_ranks(n_ranks, [&](int rank) {
    Runtime& runtime = *runtimes[static_cast<size_t>(rank)];
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = n_ranks;
    body(runtime, Communicator::create(runtime, id, options));
  });
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
    return error(ErrorCode::SystemError, "fake: no memory");
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
  const std::string why =
      "rank 1 cannot reduce int16 by bxor: its cluster reduces by host 1, which "
      "lacks this on " +
      device::make_host_device()->architecture() +
      ": use another type or operator, or host memory, or give each rank its own "
      "HETCCL_CLUSTER";
  const auto lacking = adaptors_by<fake::VendorLibrary>(std::optional(DataType::Int16));
  on_two_clusters({all_adaptors(), lacking, all_adaptors()}, [&](Runtime& runtime, auto made) {
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    Communicator& communicator = *made.value();
    device::Device& device = *runtime.device("").value();
    const auto reduce = [&](Collective collective, DataType type, RedOp op) {
      return call(communicator, device, {collective, type, op, 0, kCount});
    };
    for (const Collective one : {Collective::AllReduce, Collective::ReduceScatter}) {
      const Status status = reduce(one, DataType::Int16, RedOp::Bxor);
      CHECK(status.code() == ErrorCode::Unsupported);
      CHECK_MESSAGE(status.message().ends_with(why), status.message());
    }
    CHECK(communicator.dispatch().statistics().operations == 0);
    CHECK(reduce(Collective::AllReduce, DataType::Uint16, RedOp::Bxor).ok());
    CHECK(reduce(Collective::AllReduce, DataType::Float32, RedOp::Avg).ok());
    CHECK(reduce(Collective::AllGather, DataType::Int16, RedOp::Sum).ok());
    CHECK(communicator.dispatch().statistics().operations == 3);
    CHECK(communicator.finish().ok());
  });
}

TEST_CASE("a communicator needs no type in which its libraries add") {
  for (const Adaptors& adaptors :
       {adaptors_by<fake::VendorLibrary>(std::optional(DataType::Int32)), adaptors_by<Mover>()}) {
    on_two_clusters({adaptors, adaptors, adaptors}, [](Runtime&, auto made) {
      REQUIRE_MESSAGE(made.ok(), made.status().message());
      CHECK(made.value()->finish().ok());
    });
  }
}

TEST_CASE("a library that fails before the communicator is made is named on all ranks") {
  const Adaptors adaptors = adaptors_by<Failing>();
  on_two_clusters({adaptors, adaptors, adaptors}, [](Runtime&, auto made) {
    const Status& status = made.status();
    CHECK(status.code() == ErrorCode::SystemError);
    const std::string& text = status.message();
    CHECK_MESSAGE((text.find("rank 0: fake: no memory") != std::string::npos ||
                   text.find("rank 1: fake: no memory") != std::string::npos),
                  text);
  });
}

}  // namespace hetccl::comm
