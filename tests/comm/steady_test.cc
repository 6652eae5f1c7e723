// What a collective costs its device once it has been called a few times: work, and nothing else.
#include <doctest/doctest.h>

#include "comm/ranks.h"
#include "fake/fake_device.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;

constexpr int kRanks = 2, kAtOnce = 8, kBatches = 40;
constexpr uint64_t kCalls = kAtOnce * kBatches / 2;  // that are looked at
constexpr size_t kMost = 60'000;

struct Case {
  const char* name;
  bool apart, shm;
};

// What batches of one call make, the first half of them apart. Not quite nothing: when more calls
// than ever before are in flight, or one takes the memory of a smaller one.
uint64_t makes(fake::FakeDevice& device, const std::function<Status()>& call) {
  uint64_t before = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    if (batch == kBatches / 2) before = device.calls().makes;
    for (int i = 0; i < kAtOnce; ++i) REQUIRE(call().ok());
    REQUIRE(device.synchronize(std::chrono::seconds(20)));
  }
  return device.calls().makes - before;
}

}  // namespace

TEST_CASE("in steady state calls make nothing, and hetccl's threads call no device") {
  for (const Case test :
       {Case{"one cluster", false, true}, Case{"windows", true, true}, Case{"TCP", true, false}}) {
    CAPTURE(test.name);
    std::vector<Config> configs(kRanks);
    for (size_t r = 0; r < kRanks; ++r) {
      configs[r].cluster = test.apart && r > 0 ? "B" : "A";
      configs[r].transport_shm = test.shm;
    }
    fake::FakeOptions options;
    options.max_delay_us = 5;
    on_fake_devices(configs, options, [&](int, auto& device, std::shared_ptr<Communicator> made) {
      const auto stream = device.create_stream().value();
      void* send = device.allocate(kRanks * kMost * sizeof(float)).value();
      void* recv = device.allocate(kRanks * kMost * sizeof(float)).value();
      for (const auto collective : {Collective::AllReduce, Collective::AllGather,
                                    Collective::ReduceScatter, Collective::Broadcast}) {
        for (const size_t count : {size_t{100}, kMost}) {
          CAPTURE(hetccl::name_of(collective));
          CAPTURE(count);
          const hetccl::Signature all{collective, DataType::Float32, RedOp::Sum, 0, count};
          const uint64_t by_calls = makes(
              device, [&] { return made->start({all, send, recv}, stream->native()).status(); });
          CHECK(by_calls < kCalls / 8);
        }
      }
      CHECK(made->finish().ok());
      made.reset();
      device.free(send);
      device.free(recv);
      CHECK(device.calls().by_hetccl == 0);
    });
  }
}
