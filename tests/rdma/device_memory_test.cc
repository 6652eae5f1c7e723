// Memory of devices over RDMA, with fakes of both: what cards move themselves, what is registered
// and for how long, and what happens where a card does not reach it.
#include "comm/device_memory.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fake/fake_verbs.h"
#include "transport/verbs/verbs_transport.h"

namespace hetccl {
namespace {

using comm::Communicator;
using comm::pass_message;
using fake::FakeDevice;
using fake::FakeOptions;
using Body = std::function<void(int, FakeDevice&, std::shared_ptr<Communicator>)>;

std::vector<Config> hosts(size_t n) {
  return comm::hosts_with_devices(n, "verbs");
}

void use_fake_verbs(comm::Adaptors& adaptors) {
  for (comm::TransportRow& row : adaptors.transports) {
    if (row.name != "verbs") continue;
    row.make = [](const Config& config, const Log& log, const comm::TransportResources&) {
      return transport::make_verbs_transport(fake::verbs_api(), config, log);
    };
  }
}

void on_devices(const std::vector<Config>& configs, const FakeOptions& options, const Body& body) {
  comm::on_fake_devices(configs, options, body, use_fake_verbs);
}

void run_random_cases(const std::vector<Config>& configs, const FakeOptions& options,
                      uint64_t seed) {
  comm::run_random_cases(configs, options, seed, use_fake_verbs);
}

TEST_CASE("cards read and write the memory of devices: the values of collectives are right") {
  for (const size_t n : {2UL, 3UL}) {
    CAPTURE(n);
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
    fabric.late = 3;
    run_random_cases(hosts(n), {.seed = n, .max_delay_us = 20}, n);
    CHECK(fabric.violations == 0);
    CHECK(fabric.overflows == 0);
    CHECK(fabric.device_bytes > 1'000'000);  // a trial moves 131,072 for each rank
    CHECK(fabric.regions == 0);
    CHECK(fabric.queue_pairs == 0);
  }
}

// Short messages of the one come in slots, and those of the other in memory that is granted.
TEST_CASE("ranks whose devices cards reach and others whose they do not have the right values") {
  for (const size_t without : {0UL, 1UL}) {
    CAPTURE(without);
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
    fabric.late = 3;
    std::vector<Config> configs = hosts(2);
    configs[without].rdma_gpu = false;
    run_random_cases(configs, {.seed = 7 + without, .max_delay_us = 5}, 7 + without);
    CHECK(fabric.violations == 0);
    CHECK(fabric.device_bytes > 500'000);
  }
}

TEST_CASE("what a card writes is seen at once, or after a flush, and a trial tells of neither") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  fabric.holds_writes = true;
  run_random_cases(hosts(2), {.max_delay_us = 5, .needs_flush = true}, 4);
  CHECK(fabric.device_bytes > 1'000'000);
  // One rank's messages come in slots, from where they are copied to the other's device.
  fake::VerbsFabric& mixed = fake::reset_verbs_fabric();
  mixed.holds_writes = true;
  std::vector<Config> configs = hosts(2);
  configs[1].rdma_gpu = false;
  run_random_cases(configs, {.max_delay_us = 5, .needs_flush = true}, 8);
  CHECK(mixed.device_bytes > 500'000);
  // A device that does not say that it needs a flush: its card is found out, and left out.
  fake::VerbsFabric& other = fake::reset_verbs_fabric();
  other.holds_writes = true;
  run_random_cases(hosts(2), {.max_delay_us = 5}, 5);
  CHECK(other.device_bytes < 1'000'000);
  CHECK(other.violations == 0);
}

TEST_CASE("where memory is not exported, devices refuse it, or the user does, hosts carry it") {
  const auto moved = [](const FakeOptions& options, bool dmabufs, bool wanted) {
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
    fabric.dmabufs = dmabufs;
    std::vector<Config> configs = hosts(2);
    for (Config& config : configs) config.rdma_gpu = wanted;
    run_random_cases(configs, options, 6);
    CHECK(fabric.dmabuf_regions == 0);
    return fabric.device_bytes;
  };
  CHECK(moved({.max_delay_us = 5, .exports = false}, true, true) == 0);
  CHECK(moved({.max_delay_us = 5}, false, true) == 0);
  CHECK(moved({.max_delay_us = 5}, true, false) == 0);
  CHECK(moved({.max_delay_us = 5}, true, true) > 0);
}

TEST_CASE("a dump says whether cards move a device's memory, and why not") {
  const auto told = [](const FakeOptions& options, bool wanted) {
    fake::reset_verbs_fabric();
    std::vector<Config> configs = hosts(2);
    for (Config& config : configs) config.rdma_gpu = wanted;
    Json found;
    on_devices(configs, options, [&](int rank, auto&, const auto& made) {
      if (rank == 0) found = Json::parse(made->dispatch().dump(), "a dump", 1 << 20).value();
      CHECK(made->finish().ok());
    });
    REQUIRE(found["transports"].size() == 1);
    const Json& verbs = found["transports"][0];
    CHECK(verbs["name"] == "verbs");
    CHECK(verbs["peers"][0] == 1);
    return std::pair(*verbs["memory"].text(), *verbs["reason"].text());
  };
  CHECK(told({.max_delay_us = 5}, true) == std::pair<std::string, std::string>("device", ""));
  const auto [left_out, setting] = told({.max_delay_us = 5}, false);
  CHECK(left_out == "pinned");
  CHECK(setting == "HETCCL_RDMA_GPU=0");
  const auto [pinned, reason] = told({.max_delay_us = 5, .exports = false}, true);
  CHECK(pinned == "pinned");
  CHECK(reason != "");
}

TEST_CASE("messages of every length arrive in memory of devices") {
  for (const size_t without : {0UL, 1UL, 2UL}) {  // a rank whose card does not reach its device
    CAPTURE(without);
    fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
    std::vector<Config> configs = hosts(2);
    if (without < 2) configs[without].rdma_gpu = false;
    on_devices(configs, {.max_delay_us = 10}, [&](int rank, auto& device, const auto& made) {
      const auto stream = device.create_stream().value();
      void* memory = device.allocate(4 << 20).value();
      uint8_t seed = 0;
      for (const size_t bytes : {0UL, 1UL, 100UL, 8088UL, 8089UL, 70'000UL, 524'288UL, 3'000'001UL})
        pass_message(rank, device, *made, *stream, memory, bytes, ++seed);
      device.free(memory);
      CHECK(made->finish().ok());
    });
    CHECK(fabric.violations == 0);
    CHECK(fabric.device_bytes > 3'500'000);
  }
}

// The same address, other memory: keys of what was there before reach nothing.
TEST_CASE("memory is registered once, anew when it was freed and is used again, and let go of") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  on_devices(hosts(2), {.max_delay_us = 5}, [&](int rank, auto& device, const auto& made) {
    const auto stream = device.create_stream().value();
    const auto pass = [&](void* memory, uint8_t seed) {
      pass_message(rank, device, *made, *stream, memory, 100'000, seed);
    };
    void* const first = device.allocate(100'000).value();
    pass(first, 1);
    const uint64_t before = fake::count_registrations();
    for (uint8_t i = 0; i < 20; ++i) pass(first, i);
    if (rank == 0) CHECK(fake::count_registrations() <= before + 1);  // rank 1 may come later
    for (uint8_t i = 0; i < 20; ++i) {
      device.free(first);
      void* const again = device.allocate(100'000).value();
      REQUIRE(again == first);
      pass(again, i);
    }
    CHECK(fake::count_registrations() >= before + 19);
    device.free(first);
    // Others' calls find that it was freed.
    void* const other = device.allocate(300'000).value();
    for (uint8_t i = 0; i < 100; ++i) pass(other, i);
    device.free(other);
    CHECK(made->finish().ok());
  });
  CHECK(fabric.violations == 0);
  CHECK(fabric.regions == 0);
}

// The user's memory finds room on the card, and that in which hetccl adds up does not.
TEST_CASE("where a card has no room for hetccl's own memory, pinned memory carries the call") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  constexpr uint64_t kCount = 300'000;
  fabric.refuses_dmabuf = [](size_t bytes) {
    return bytes > 70'000 && bytes / 1000 != kCount * sizeof(float) / 1000;
  };
  on_devices(hosts(2), {.max_delay_us = 5}, [&](int rank, auto& device, const auto& made) {
    const auto stream = device.create_stream().value();
    void* memory = device.allocate(kCount * sizeof(float)).value();
    std::vector<float> values(kCount);
    for (int round = 0; round < 3; ++round) {
      for (uint64_t i = 0; i < kCount; ++i)
        values[i] = static_cast<float>(i % 1000) + static_cast<float>(rank);
      device.upload(memory, values.data(), kCount * sizeof(float));
      const comm::CollectiveArguments call{
          {.collective = Collective::AllReduce, .type = DataType::Float32, .count = kCount},
          memory,
          memory};
      const Status status = made->dispatch().call(call, stream->native());
      CHECK_MESSAGE(status.ok(), status.message());
      CHECK(device.synchronize(fake::kHang));
      device.download(values.data(), memory, kCount * sizeof(float));
      size_t wrong = 0;
      for (uint64_t i = 0; i < kCount; ++i)
        wrong += values[i] == static_cast<float>(2 * (i % 1000) + 1) ? 0 : 1;
      CHECK(wrong == 0);
    }
    device.free(memory);
    CHECK(made->finish().ok());
  });
  CHECK(fabric.violations == 0);
}

TEST_CASE("a card that fails in mid-collective is an error on all ranks") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  fabric.fails_from = 3000;  // when the communicator has been made
  on_devices(hosts(2), {.max_delay_us = 5}, [&](int, auto& device, const auto& made) {
    const auto stream = device.create_stream().value();
    constexpr uint64_t kCount = 1 << 20;
    void* memory = device.allocate(kCount * 4).value();
    comm::CollectiveArguments call{
        {.collective = Collective::AllReduce, .type = DataType::Float32, .count = kCount},
        memory,
        memory};
    for (int i = 0; i < 500 && made->dispatch().failure().ok(); ++i) {
      if (!made->dispatch().call(call, stream->native()).ok()) break;
      CHECK(device.synchronize(fake::kHang));
    }
    const std::string why = made->dispatch().failure().message();
    CHECK_MESSAGE(why.find("RDMA") != std::string::npos, why);
    device.free(memory);
  });
}

}  // namespace
}  // namespace hetccl
