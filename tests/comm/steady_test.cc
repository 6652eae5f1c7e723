// The calls that a collective makes on its device once it has been made a few times: only its work.
#include <doctest/doctest.h>

#include <array>
#include <optional>

#include "comm/ranks.h"
#include "fake/fake_device.h"
#include "fake/sample.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;

#if defined(HETCCL_UNDER_ASAN) || defined(HETCCL_UNDER_TSAN)  // slow, and the counts are the same
constexpr uint64_t kSteadyOneIn = 3;
#else
constexpr uint64_t kSteadyOneIn = 1;
#endif
constexpr int kRanks = 2, kAtOnce = 4, kBatches = 4;
constexpr size_t kMostCalls = size_t{1} << 17;  // in slices, on streams of their own

struct Case {
  std::string name;
  bool apart, shm;
};

// Objects that the device makes in the second half of some batches, of one call each, all in flight
// at once.
template <typename Arguments>
uint64_t makes(fake::FakeDevice& device, Communicator& communicator, device::Stream& stream,
               const Arguments& arguments) {
  auto* gate = new (device.allocate_pinned(sizeof(device::Flag)).value()) device::Flag;
  uint64_t before = 0;
  for (uint32_t batch = 0; batch < kBatches; ++batch) {
    if (batch == kBatches / 2) before = device.calls().makes;
    REQUIRE(device.wait_flag(stream, *gate, batch + 1).ok());
    std::optional<Dispatch::Ticket> last;
    for (int i = 0; i < kAtOnce; ++i) {
      last = communicator.dispatch().start(arguments, {.stream = stream.native()}).value();
    }
    gate->word.store(batch + 1, std::memory_order_release);
    REQUIRE(communicator.dispatch().complete(*last).ok());
    REQUIRE(device.synchronize(fake::kHang));
  }
  const uint64_t made = device.calls().makes - before;
  device.free_pinned(gate);
  return made;
}

}  // namespace

TEST_CASE("in steady state calls make nothing, and hetccl's threads call no device") {
  uint64_t index = 0;
  for (const Case& test :
       {Case{"one cluster", false, true}, Case{"windows", true, true}, Case{"TCP", true, false}}) {
    if (!fake::is_sampled(index++, kSteadyOneIn)) continue;
    CAPTURE(test.name);
    std::vector<Config> configs(kRanks);
    for (size_t r = 0; r < kRanks; ++r) {
      configs[r].cluster = test.apart && r > 0 ? "B" : "A";
      configs[r].transport_shm = test.shm;
      configs[r].slice_bytes = size_t{64} << 10;
      configs[r].library_messages = false;  // made at any time
    }
    fake::FakeOptions options;
    options.max_delay_us = 5;
    on_fake_devices(configs, options, [&](int r, auto& device, std::shared_ptr<Communicator> made) {
      const auto stream = device.create_stream().value();
      void* send = device.allocate(kRanks * kMostCalls * sizeof(float)).value();
      void* recv = device.allocate(kRanks * kMostCalls * sizeof(float)).value();
      for (const auto collective :
           {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter,
            Collective::Broadcast, Collective::AllToAll}) {
        for (const size_t count : {size_t{100}, kMostCalls}) {
          CAPTURE(hetccl::name_of(collective));
          CAPTURE(count);
          const hetccl::Signature all{collective, DataType::Float32, RedOp::Sum, 0, count};
          CHECK(makes(device, *made, *stream, CollectiveArguments{all, send, recv}) == 0);
        }
      }
      for (const size_t count : {size_t{100}, 16 * kMostCalls}) {
        CAPTURE(count);
        const exec::Message messages[] = {
            {.send = true, .peer = 1 - r, .data = send, .type = DataType::Int8, .count = count / 8},
            {.peer = 1 - r, .data = recv, .type = DataType::Int8, .count = count / 8}};
        CHECK(makes(device, *made, *stream, std::span<const exec::Message>(messages)) == 0);
      }
      CHECK(made->finish().ok());
      made.reset();
      device.free(send);
      device.free(recv);
      CHECK(device.calls().by_hetccl == 0);
    });
  }
}

// All calls are in place, so a call that reads another's memory gets a wrong result.
TEST_CASE("calls in flight share their memory, whatever streams they are on") {
  constexpr size_t kCount = size_t{1} << 17, kBytes = kCount * sizeof(float);
  constexpr int kDoubled = 8;
  fake::FakeOptions little;
  little.max_delay_us = 5;
  little.memory_bytes = 8 * kBytes;  // two buffers, and what two or three calls need
  for (const Case& test : {Case{"windows", true, true}, Case{"TCP", true, false}}) {
    CAPTURE(test.name);
    std::vector<Config> configs(kRanks);
    for (size_t r = 0; r < kRanks; ++r) {
      configs[r].cluster = r > 0 ? "B" : "A";
      configs[r].transport_shm = test.shm;
    }
    on_fake_devices(configs, little, [&](int r, auto& device, std::shared_ptr<Communicator> made) {
      std::vector<float> values(kCount);
      for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000);
      std::array<std::unique_ptr<device::Stream>, 2> streams;
      std::array<void*, 2> buffers{};
      for (size_t s = 0; s < 2; ++s) {
        streams[s] = device.create_stream().value();
        buffers[s] = device.allocate(kBytes).value();
        device.upload(buffers[s], values.data(), kBytes);
      }
      auto* gate = new (device.allocate_pinned(sizeof(device::Flag)).value()) device::Flag;
      for (const auto& stream : streams) REQUIRE(device.wait_flag(*stream, *gate, 1).ok());
      const hetccl::Signature sum{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, kCount};
      for (int call = 0; call < kDoubled; ++call) {
        for (size_t s = 0; s < 2; ++s) {
          const auto started = made->dispatch().start({sum, buffers[s], buffers[s]},
                                                      {.stream = streams[s]->native()});
          REQUIRE_MESSAGE(started.ok(), started.status().message());
        }
        if (call == kDoubled / 2 + r) gate->word.store(1, std::memory_order_release);
      }
      REQUIRE(device.synchronize(fake::kHang));
      for (void* buffer : buffers) {
        std::vector<float> got(kCount);
        device.download(got.data(), buffer, kBytes);
        size_t wrong = 0;
        for (size_t i = 0; i < kCount; ++i) wrong += got[i] != values[i] * (1 << kDoubled) ? 1 : 0;
        CHECK(wrong == 0);
        device.free(buffer);
      }
      CHECK(made->finish().ok());
      made.reset();
      device.free_pinned(gate);
    });
  }
}
