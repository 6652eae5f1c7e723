// Measures what an asynchronous all-reduce of 8 bytes on a stream costs its caller, from call to
// return, back to back, without waiting: hetccl_launch BATCHES. And how often the process takes
// memory.
#include <atomic>

#include "hetccl_ranks.h"

namespace {
std::atomic<size_t> taken{0};
}  // namespace

extern "C" void* __libc_malloc(size_t bytes);  // glibc's own
extern "C" void* malloc(size_t bytes) {
  taken.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  constexpr int kCalls = 64, kWarmUps = 50;  // until all memory is taken
  bench::HetcclRanks ranks;
  hetcclStream_t stream = nullptr;
  bench::check(hetcclHostStreamCreate(&stream), "hetcclHostStreamCreate");
  const float in[2] = {1, 1};
  float out[2] = {};
  std::vector<double> seconds;
  size_t memory = 0;
  const int batches = std::atoi(argv[1]);
  seconds.reserve(static_cast<size_t>(batches));
  for (int b = -kWarmUps; b < batches; ++b) {
    ranks.barrier();
    const size_t before = taken.load();
    const double start = bench::now();
    for (int i = 0; i < kCalls; ++i) {
      bench::check(hetcclAllReduce(in, out, 2, hetcclFloat32, hetcclSum, ranks.comm(), stream),
                   "launch");
    }
    const double end = bench::now();
    if (b >= 0) seconds.push_back((end - start) / kCalls), memory += taken.load() - before;
    uint64_t ticket = 0;
    bench::check(hetcclHostStreamRecord(stream, &ticket), "hetcclHostStreamRecord");
    bench::check(hetcclHostStreamWait(stream, ticket, -1), "hetcclHostStreamWait");
  }
  bench::Report report;
  report.add("launch", sizeof in, bench::summary(seconds),
             out[0] == static_cast<float>(ranks.size()),
             ", \"allocations\": " + std::to_string(memory));
  const int status = report.finish(ranks.rank());
  bench::check(hetcclHostStreamDestroy(stream), "hetcclHostStreamDestroy");
  return status;
}
