// Memory of devices by a net plug-in, with fakes of both: what the plug-in moves itself, what is
// registered and for how long, and what happens where it does not take such memory.
#include "comm/device_memory.h"

#include <string>
#include <vector>

#include "base/cores.h"
#include "fake/net_plugin.h"
#include "fake/sysfs.h"
#include "ncclnet/check_clean.h"

namespace hetccl {
namespace {

using comm::pass_message;
using comm::run_random_cases;
using fake::check_clean;

constexpr int kVersion = 11;
constexpr int kHostAndDmaBuf = 1 | 4;

fake::NetPlugin& reset_plugin() {
  fake::NetPlugin& plugin = fake::reset_net_plugin(kVersion);
  plugin.pointers = kHostAndDmaBuf;
  return plugin;
}

std::vector<Config> hosts(size_t n) {
  std::vector<Config> configs = comm::hosts_with_devices(n, "ncclnet");
  for (Config& config : configs) config.net_plugin = fake::net_plugin_path(kVersion);
  return configs;
}

TEST_CASE("plug-ins read and write the memory of devices: the values of collectives are right") {
  for (const size_t n : {2UL, 3UL}) {
    CAPTURE(n);
    fake::NetPlugin& plugin = reset_plugin();
    plugin.works_one_in = 2;
    plugin.late = 3;
    run_random_cases(hosts(n), {.seed = n, .max_delay_us = 20}, n);
    check_clean(plugin);
    CHECK(plugin.gpu_bytes > 1'000'000);  // a trial moves 131,072 for each rank
    CHECK(plugin.flushes == 0);
  }
}

// Short messages of the one come over the control connection, and are for a device at the other.
TEST_CASE("ranks whose devices the plug-in reaches and others have the right values") {
  for (const size_t without : {0UL, 1UL}) {
    CAPTURE(without);
    fake::NetPlugin& plugin = reset_plugin();
    plugin.late = 3;
    std::vector<Config> configs = hosts(2);
    configs[without].rdma_gpu = false;
    run_random_cases(configs, {.seed = 7 + without, .max_delay_us = 5}, 7 + without);
    check_clean(plugin);
    CHECK(plugin.gpu_bytes > 500'000);
  }
}

TEST_CASE(
    "what a plug-in writes is seen after a flush, and a trial tells where none is asked for") {
  for (const bool forced : {false, true}) {
    CAPTURE(forced);
    fake::NetPlugin& plugin = reset_plugin();
    plugin.holds_writes = true;
    plugin.force_flush = forced;
    plugin.works_one_in = 2;
    run_random_cases(hosts(2), {.max_delay_us = 5, .needs_flush = !forced}, 4);
    check_clean(plugin);
    CHECK(plugin.gpu_bytes > 1'000'000);
    CHECK(plugin.flushes > 2);
  }
  fake::NetPlugin& plugin = reset_plugin();
  plugin.holds_writes = true;
  run_random_cases(hosts(2), {.max_delay_us = 5}, 5);
  check_clean(plugin);
  CHECK(plugin.gpu_bytes < 1'000'000);
  CHECK(plugin.flushes == 0);
}

TEST_CASE("where the plug-in does not take a device's memory, it goes through the host's") {
  const auto moved = [](const fake::FakeOptions& options, int pointers, bool refuses, bool wanted) {
    fake::NetPlugin& plugin = reset_plugin();
    plugin.pointers = pointers;
    plugin.refuses_gpus = refuses;
    std::vector<Config> configs = hosts(2);
    for (Config& config : configs) config.rdma_gpu = wanted;
    run_random_cases(configs, options, 6);
    check_clean(plugin);
    return plugin.gpu_bytes.load();
  };
  constexpr int kHost = 1, kHostAndCuda = 1 | 2;
  CHECK(moved({.max_delay_us = 5}, kHost, false, true) == 0);
  CHECK(moved({.max_delay_us = 5}, kHostAndCuda, false, true) == 0);  // no driver finds the memory
  CHECK(moved({.max_delay_us = 5}, kHostAndDmaBuf, true, true) == 0);
  CHECK(moved({.max_delay_us = 5}, kHostAndDmaBuf, false, false) == 0);
  CHECK(moved({.max_delay_us = 5, .exports = false}, kHostAndDmaBuf, false, true) == 0);
  CHECK(moved({.max_delay_us = 5}, kHostAndDmaBuf, false, true) > 0);
}

TEST_CASE("messages of every length arrive in memory of devices") {
  for (const size_t without : {0UL, 1UL, 2UL}) {  // a rank whose device is not reached
    CAPTURE(without);
    fake::NetPlugin& plugin = reset_plugin();
    plugin.max_bytes = without == 1 ? 5000 : 1 << 30;
    std::vector<Config> configs = hosts(2);
    if (without < 2) configs[without].rdma_gpu = false;
    const auto body = [&](int rank, auto& device, const auto& made) {
      const auto stream = device.create_stream().value();
      void* memory = device.allocate(4 << 20).value();
      uint8_t seed = 0;
      for (const size_t bytes : {0UL, 1UL, 100UL, 8192UL, 8193UL, 70'000UL, 524'288UL, 3'000'001UL})
        pass_message(rank, device, *made, *stream, memory, bytes, ++seed);
      device.free(memory);
      CHECK(made->finish().ok());
    };
    comm::on_fake_devices(configs, {.max_delay_us = 10}, body);
    check_clean(plugin);
    CHECK(plugin.gpu_bytes > 3'500'000);
  }
}

// No device of this machine has its address, so none of the plug-in's is near: not even the one
// that is next to the rank's cores.
TEST_CASE("a rank's device decides which of the plug-in's is near, not where its process runs") {
  const fake::Sysfs sys;
  for (const char* bus : {"", "ffff:ff:1f.7"}) {
    fake::NetPlugin& plugin = reset_plugin();
    plugin.devices = 2;
    for (const char* name : {"pci0000:00/0000:00:01.0", "pci0000:80/0000:80:01.0"})
      plugin.pci_paths.push_back(sys.folder(name));
    sys.write("devices/pci0000:00/0000:00:01.0/local_cpulist", "8000");
    sys.write("devices/pci0000:80/0000:80:01.0/local_cpulist", list_of_cores());
    const auto body = [](int rank, auto& device, const auto& made) {
      const auto stream = device.create_stream().value();
      void* memory = device.allocate(100'000).value();
      pass_message(rank, device, *made, *stream, memory, 100'000, 1);
      device.free(memory);
      CHECK(made->finish().ok());
    };
    comm::on_fake_devices(hosts(2), {.max_delay_us = 5, .bus = bus}, body);
    check_clean(plugin);
    CHECK(plugin.listened_with == (*bus == '\0' ? 1 : 0));
  }
}

// Messages to a device that come from a host's memory, more of them than the loopback has room for.
TEST_CASE("a row of short messages from a host arrives in order") {
  fake::NetPlugin& plugin = reset_plugin();
  plugin.late = 20;
  std::vector<Config> configs = hosts(2);
  configs[0].rdma_gpu = false;
  const auto body = [&](int rank, auto& device, const auto& made) {
    constexpr size_t kMessages = 100, kBytes = 5000;
    const auto stream = device.create_stream().value();
    auto* memory = static_cast<std::byte*>(device.allocate(kMessages * kBytes).value());
    std::vector<std::byte> sent(kMessages * kBytes), got(sent.size());
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i / 7);
    if (rank == 0) device.upload(memory, sent.data(), sent.size());
    std::vector<exec::Message> messages;
    for (size_t i = 0; i < kMessages; ++i)
      messages.push_back({.send = rank == 0,
                          .peer = 1 - rank,
                          .data = memory + i * kBytes,
                          .type = DataType::Uint8,
                          .count = kBytes});
    CHECK(made->dispatch().call(messages, stream->native()).ok());
    CHECK(device.synchronize(fake::kHang));
    device.download(got.data(), memory, got.size());
    CHECK(got == sent);
    device.free(memory);
    CHECK(made->finish().ok());
  };
  comm::on_fake_devices(configs, {.max_delay_us = 5}, body);
  check_clean(plugin);
}

// The same address, other memory: what was registered before reaches nothing.
TEST_CASE("memory is registered once, anew when it was freed and is used again, and let go of") {
  fake::NetPlugin& plugin = reset_plugin();
  const auto body = [&](int rank, auto& device, const auto& made) {
    const auto stream = device.create_stream().value();
    const auto pass = [&](void* memory, uint8_t seed) {
      pass_message(rank, device, *made, *stream, memory, 100'000, seed);
    };
    void* const first = device.allocate(100'000).value();
    for (uint8_t i = 0; i < 5; ++i) pass(first, i);
    const uint64_t before = plugin.registered;
    for (uint8_t i = 0; i < 20; ++i) pass(first, i);
    CHECK(plugin.registered <= before + 3);  // the other rank's first, which may come later
    for (uint8_t i = 0; i < 20; ++i) {
      device.free(first);
      void* const again = device.allocate(100'000).value();
      REQUIRE(again == first);
      pass(again, i);
    }
    CHECK(plugin.registered >= before + 19);
    device.free(first);
    // Others' calls find that it was freed.
    void* const other = device.allocate(300'000).value();
    for (uint8_t i = 0; i < 100; ++i) pass(other, i);
    device.free(other);
    CHECK(made->finish().ok());
  };
  comm::on_fake_devices(hosts(2), {.max_delay_us = 5}, body);
  check_clean(plugin);
}

}  // namespace
}  // namespace hetccl
