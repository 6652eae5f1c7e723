// A GPU's memory for network cards: what the driver tells of it and exports, and whole jobs whose
// data a fake of a card moves from GPU to GPU, by copies of the driver's.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "fake/cases.h"
#include "fake/fake_verbs.h"
#include "gpu/gpu.h"
#include "gpu/job.h"
#include "transport/verbs/verbs_transport.h"

using namespace hetccl;
using namespace hetccl::gpu_tests;

namespace {

constexpr size_t kMiB = size_t{1} << 20U, kGranule = 2 * kMiB;

bool on_cuda() {
  return runtime() != nullptr && vendors().front() == "cuda";
}

// Calls of CUDA's driver that hetccl does not make.
template <typename... Arguments>
int cuda(const char* name, Arguments... arguments) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  auto* const call = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name));
  return call == nullptr ? -1 : call(arguments...);
}

struct CudaProperties {
  int type = 1, handles = 0, place = 1, device = 0;
  void* windows = nullptr;
  unsigned char compression = 0, rdma_capable = 1;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
struct CudaAccess {
  int place = 1, device = 0, flags = 3;
};

// Physical memory at an address of the process's choice, as PyTorch's expandable segments have it.
uint64_t map_physical(uint64_t at) {
  const CudaProperties properties;
  const CudaAccess access;
  uint64_t handle = 0;
  REQUIRE(cuda("cuMemCreate", &handle, kGranule, &properties, uint64_t{0}) == 0);
  REQUIRE(cuda("cuMemMap", at, kGranule, size_t{0}, handle, uint64_t{0}) == 0);
  REQUIRE(cuda("cuMemSetAccess", at, kGranule, &access, size_t{1}) == 0);
  return handle;
}

void unmap_physical(uint64_t at, uint64_t handle) {
  CHECK(cuda("cuMemUnmap", at, kGranule) == 0);
  CHECK(cuda("cuMemRelease", handle) == 0);
}

void check_export(device::Device& device, const device::Allocation& allocation) {
  auto exported = device.export_memory(allocation);
  CHECK_MESSAGE(exported.ok(), exported.status().message());
  if (exported.ok()) CHECK(exported->fd.valid());
}

TEST_CASE("allocations are told apart, also where one follows another at its address") {
  if (!on_cuda()) return;
  const auto device = open();
  device->make_current();
  const auto api = runtime();
  void* memory = nullptr;
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(api->allocate(&memory, 100 * kMiB) == 0);
    const auto whole = device->find_allocation(memory);
    REQUIRE(whole.has_value());
    CHECK(whole->on_device);
    CHECK(whole->base <= memory);
    CHECK(whole->bytes >= 100 * kMiB);
    CHECK(whole->id != last);
    last = whole->id;
    const auto inner = device->find_allocation(static_cast<std::byte*>(memory) + 60 * kMiB);
    REQUIRE(inner.has_value());
    CHECK(inner->id == whole->id);
    check_export(*device, *whole);
    REQUIRE(api->free(memory) == 0);
    const auto gone = device->find_allocation(memory);
    CHECK((!gone || gone->id != last));
  }
  void* const own = device->allocate(1000).value();
  const auto pool = device->find_allocation(own);
  REQUIRE(pool.has_value());
  check_export(*device, *pool);
  device->free(own);
}

TEST_CASE("pinned memory is the host's, and what cards may not reach is in no allocation") {
  if (!on_cuda()) return;
  const auto device = open();
  device->make_current();
  void* const pinned = device->allocate_pinned(kMiB).value();
  const auto found = device->find_allocation(pinned);
  REQUIRE(found.has_value());
  CHECK_FALSE(found->on_device);
  CHECK(found->base <= pinned);
  device->free_pinned(pinned);
  std::vector<std::byte> own(4096);
  CHECK_FALSE(device->find_allocation(own.data()).has_value());
  uint64_t managed = 0;
  REQUIRE(cuda("cuMemAllocManaged", &managed, kMiB, 1U) == 0);
  CHECK_FALSE(device->find_allocation(reinterpret_cast<void*>(managed)).has_value());
  CHECK(cuda("cuMemFree_v2", managed) == 0);
}

TEST_CASE(
    "each mapping of an expandable segment is an allocation, and another once it is remapped") {
  if (!on_cuda()) return;
  const auto device = open();
  device->make_current();
  uint64_t base = 0;
  REQUIRE(cuda("cuMemAddressReserve", &base, 4 * kGranule, size_t{0}, uint64_t{0}, uint64_t{0}) ==
          0);
  const uint64_t first = map_physical(base);
  uint64_t second = map_physical(base + kGranule);
  const auto find = [&](uint64_t at) {
    return device->find_allocation(reinterpret_cast<void*>(at));
  };
  const auto one = find(base + 5), other = find(base + kGranule);
  REQUIRE(one.has_value());
  REQUIRE(other.has_value());
  CHECK(one->bytes == kGranule);
  CHECK(one->base != other->base);
  CHECK(one->id != other->id);
  CHECK_FALSE(find(base + 2 * kGranule).has_value());
  check_export(*device, *one);
  unmap_physical(base + kGranule, second);
  CHECK_FALSE(find(base + kGranule).has_value());
  second = map_physical(base + kGranule);
  const auto again = find(base + kGranule);
  REQUIRE(again.has_value());
  CHECK(again->base == other->base);
  CHECK(again->id != other->id);
  unmap_physical(base, first);
  unmap_physical(base + kGranule, second);
  CHECK(cuda("cuMemAddressFree", base, 4 * kGranule) == 0);
}

// The fake's copies wait on a stream of their own.
void run_over_fake_cards(const std::vector<Place>& places, uint64_t seed) {
  const auto device = open();
  const auto stream = device->create_stream().value();
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  fabric.copy = [&](void* to, const void* from, size_t bytes) {
    REQUIRE(device->copy(*stream, to, from, bytes).ok());
    REQUIRE(drain(*device, *stream));
  };
  Config config = Config::from_environment().value();
  config.transport = "verbs";
  config.socket_ifname = "=lo";
  config.slice_bytes = 256 << 10;
  std::vector<std::string> labels;
  for (const Place& place : places) labels.push_back(place.label);
  {
    Job job(places, config, nullptr, [](int rank, Config& own, comm::Adaptors& adaptors) {
      own.host_id = format("host%d", rank);
      for (comm::TransportRow& row : adaptors.transports) {
        if (row.name != "verbs") continue;
        row.make = [](const Config& of, const Log& log, const comm::TransportResources&) {
          return transport::make_verbs_transport(fake::verbs_api(), of, log);
        };
      }
    });
    std::mt19937_64 random(seed);
    for (int i = 0; i < 25; ++i)
      CHECK(job.run(fake::random_case(random, labels, i % 5 == 0 ? 300'000 : 4000)) == "");
    for (const uint64_t count : {1UL, 2000UL, 300'000UL, 2'000'000UL})
      CHECK(job.run({{0, 1, count}, {1, 0, count}}) == "");
  }
  CHECK(fabric.violations == 0);
  CHECK(fabric.device_bytes > 10'000'000);
  MESSAGE(fabric.device_bytes, " bytes moved from and to GPUs, in ", fabric.registered, " regions");
  fake::reset_verbs_fabric();
}

TEST_CASE("collectives and messages whose data cards move from GPU to GPU have the right values") {
  if (!on_cuda()) return;
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);  // else ranks of a GPU share queues
  const std::string other = count() > 1 ? "cuda:1" : "cuda:0";
  run_over_fake_cards({{"cuda:0", "A"}, {other, "B"}}, 1);
  run_over_fake_cards({{"cuda:0", "A"}, {"host", "B"}}, 2);
}

}  // namespace
