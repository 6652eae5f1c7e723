// How fast a GPU reduces and encodes, against how fast it copies: GB/s of all bytes read and
// written.
//   gpu_bench [bytes of a source = 64 MiB]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/config.h"
#include "base/encoding.h"
#include "device/gpu/gpu_device.h"

namespace {

using namespace hetccl;
using namespace hetccl::device;

constexpr int kRuns = 50;

// The value, or the reason and the end.
template <typename T>
T need(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "gpu_bench: %s\n", result.status().message().c_str());
  std::exit(1);
}
void need(const Status& status) {
  need(status.ok() ? Result<int>(0) : Result<int>(status));
}

// Seconds of one `enqueue`, which the stream begins when all are there.
double time(Device& device, Stream& stream, Flag* flags, const std::function<Status()>& enqueue) {
  static uint32_t turn = 0;
  const auto wait_for = [&](Flag& flag, uint32_t value) {
    while (!flag.reached(value)) std::this_thread::yield();
  };
  need(enqueue());
  need(device.wait_flag(stream, flags[0], ++turn));
  need(device.write_flag(stream, flags[1], turn));
  for (int i = 0; i < kRuns; ++i) need(enqueue());
  need(device.write_flag(stream, flags[2], turn));
  flags[0].word.store(turn);
  wait_for(flags[1], turn);
  const TimePoint start = steady_clock().now();
  wait_for(flags[2], turn);
  return std::chrono::duration<double>(steady_clock().now() - start).count() / kRuns;
}

void measure(Device& device, const char* blocks, size_t bytes) {
  constexpr int kMost = 4;
  auto stream = need(device.create_stream());
  auto* flags = static_cast<Flag*>(need(device.allocate_pinned(3 * sizeof(Flag))));
  void* memory[kMost + 1];
  for (void*& one : memory) one = need(device.allocate(bytes));
  const double copied = 2 * static_cast<double>(bytes) / 1e9 / time(device, *stream, flags, [&] {
                          return device.copy(*stream, memory[kMost], memory[0], bytes);
                        });
  std::printf("%s blocks: copy %.0f GB/s\n", blocks, copied);
  for (const DataType type : {DataType::Float32, DataType::BFloat16, DataType::Float16,
                              DataType::Float8E4m3, DataType::Float64, DataType::Int8}) {
    for (const int n : {2, 3, kMost}) {
      Reduction r;
      r.dst = memory[kMost];
      for (; r.n_srcs < n; ++r.n_srcs) r.srcs[r.n_srcs] = memory[r.n_srcs];
      r.count = bytes / size_of(type);
      r.type = type;
      const double rate = (n + 1) * static_cast<double>(bytes) / 1e9 /
                          time(device, *stream, flags, [&] { return device.reduce(*stream, r); });
      std::printf("  %-12s %d sources  %5.0f GB/s  %3.0f %% of copy\n",
                  std::string(name_of(type)).c_str(), n, rate, 100 * rate / copied);
    }
  }
  for (const DataType type : {DataType::Float32, DataType::BFloat16, DataType::Float16}) {
    for (const Format format : kFormats) {
      constexpr uint32_t kResult = 1U << Reduction::kMaxSources;
      for (const auto& [name, encoded, fed] : {std::tuple{"encodes", kResult, false},
                                               {"feeds back", kResult, true},
                                               {"decodes", 1U, false},
                                               {"adds", 2U, false}}) {
        Reduction r;
        r.dst = memory[kMost];
        r.n_srcs = encoded == 2 ? 2 : 1;
        for (int s = 0; s < r.n_srcs; ++s) r.srcs[s] = memory[s];
        r.count = bytes / size_of(type);
        r.type = type;
        r.encoding.format = format;
        r.encoded = encoded;
        size_t moved = bytes_of_operand(r, Reduction::kMaxSources);
        for (int s = 0; s < r.n_srcs; ++s) moved += bytes_of_operand(r, s);
        if (fed) r.residual = memory[1];
        if (fed) moved += 2 * bytes;
        const double rate = static_cast<double>(moved) / 1e9 /
                            time(device, *stream, flags, [&] { return device.reduce(*stream, r); });
        std::printf("  %-12s %-4s %-10s %5.0f GB/s  %3.0f %% of copy\n",
                    std::string(name_of(type)).c_str(), std::string(name_of(format)).c_str(), name,
                    rate, 100 * rate / copied);
      }
    }
  }
  stream.reset();
  for (void* one : memory) device.free(one);
  device.free_pinned(flags);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : size_t{64} << 20;
  const auto api = need(gpu::load_cuda());
  const Config config = need(Config::from_environment());
  GpuOptions options;
  options.compiler = need(kernels::load_nvrtc(config.nvrtc_library));
  options.cache = config.kernel_cache;
  for (const auto& [blocks, name] : {std::pair{0, "all"}, std::pair{8, "8"}, std::pair{32, "32"}}) {
    options.blocks = blocks;
    auto device = need(make_gpu_device(api, options));
    std::printf("%s, %s, %zu MiB a source\n", device->model().c_str(),
                device->architecture().c_str(), bytes >> 20);
    measure(*device, name, bytes);
  }
  return 0;
}
