// How fast collectives of GPUs are, in one cluster (NCCL alone) and in two (hetccl between them,
// through shared memory and over TCP): median of seven after two warm-ups, GB/s of the buffer.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "gpu/gpu.h"
#include "gpu/job.h"

namespace {

using namespace hetccl;
using namespace hetccl::gpu_tests;

constexpr std::array kSizes = {size_t{4} << 10U, size_t{1} << 20U, size_t{64} << 20U,
                               size_t{256} << 20U};
constexpr std::array kCollectives = {Collective::AllReduce, Collective::AllGather,
                                     Collective::ReduceScatter, Collective::Broadcast};

double median_of_seven(Job& job, const std::vector<comm::CollectiveArguments>& calls, int times) {
  std::array<double, 7> seconds{};
  for (int i = -2; i < 7; ++i) {
    const double one = job.time(calls, times);
    if (i >= 0) seconds[static_cast<size_t>(i)] = one;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[3];
}

void measure(const char* what, const std::vector<Place>& places, bool shm) {
  Config config = Config::from_environment().value();
  config.transport_shm = shm;
  Job job(places, config);
  const auto n = static_cast<size_t>(job.n());
  std::vector<void*> send, recv;
  for (int r = 0; r < job.n(); ++r) {
    send.push_back(job.allocate(r, kSizes.back()));
    recv.push_back(job.allocate(r, kSizes.back()));
  }
  std::printf("%s\n", what);
  for (const Collective collective : kCollectives) {
    std::printf("  %-14s", std::string(name_of(collective)).c_str());
    for (const size_t bytes : kSizes) {
      const bool parts =
          collective == Collective::AllGather || collective == Collective::ReduceScatter;
      const uint64_t count = bytes / sizeof(float) / (parts ? n : 1);
      std::vector<comm::CollectiveArguments> calls;
      for (size_t r = 0; r < n; ++r) {
        comm::CollectiveArguments call;
        call.signature = {collective, DataType::Float32, RedOp::Sum, 0, count};
        call.send = send[r];
        call.recv = recv[r];
        calls.push_back(call);
      }
      const double one = median_of_seven(job, calls, 1);
      const double row = median_of_seven(job, calls, bytes > (1U << 20U) ? 5 : 50);
      if (bytes < (1U << 20U))
        std::printf("  %6.1f us (%6.1f in a row)", one * 1e6, row * 1e6);
      else
        std::printf("  %7.2f GB/s", static_cast<double>(bytes) / row / 1e9);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

}  // namespace

TEST_CASE("collectives of GPUs") {
  const int n = count();
  if (n < 1) return;
  std::vector<Place> one, two, mixed;
  for (int gpu = 0; gpu < n; ++gpu) {
    const std::string device = "cuda:" + std::to_string(gpu);
    one.push_back({device, "A"});
    two.push_back({device, gpu < (n + 1) / 2 ? "A" : "B"});
    if (gpu < 2) mixed.push_back({device, "A"});
  }
  mixed.push_back({"host", "H"});
  mixed.push_back({"host", "H"});
  std::printf("%d GPUs; 4 KiB, 1 MiB, 64 MiB, 256 MiB\n", n);
  if (n > 1) measure("one cluster", one, true);
  if (n > 1) measure("two clusters, shared memory", two, true);
  if (n > 1) measure("two clusters, TCP loopback", two, false);
  measure("GPUs and two ranks of the host", mixed, true);
}
