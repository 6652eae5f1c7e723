// A program for NCCL in the manner of nccl-tests, which knows nothing of hetccl: one process for
// each rank (RANK, WORLD_SIZE, LOCAL_RANK), which meet by a file. Buffers lie in the memory of the
// process's GPU, or in the host's where there is none. NCCL_PERF_RUNTIME names the GPU's runtime:
// cuda, or hip. Prints nccl-tests' columns on rank 0, and exits with 1 where a value is wrong.
//   nccl_perf ID_FILE [-b BYTES] [-e BYTES] [-f FACTOR] [-n TIMES] [-w WARM_UPS] [-c COLLECTIVE]
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nccl/declarations.h"

namespace {

constexpr ncclDataType_t kFloat = 7;
constexpr ncclRedOp_t kSum = 0;

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", call, ncclGetErrorString(result), ncclGetLastError(nullptr));
  std::exit(1);
}

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

// A GPU's memory by its runtime, CUDA's or HIP's, whose calls differ by their first letters; or the
// host's.
class Memory {
 public:
  explicit Memory(int local_rank) {
    const char* const named = std::getenv("NCCL_PERF_RUNTIME");
    if (named != nullptr) runtime_ = named;
    if (runtime_ != "cuda" && runtime_ != "hip") {
      std::fprintf(stderr, "NCCL_PERF_RUNTIME is %s: cuda or hip\n", named);
      std::exit(2);
    }
    const std::vector<const char*> files =
        runtime_ == "hip" ? std::vector{"libamdhip64.so.7", "libamdhip64.so.6"}
                          : std::vector{"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    for (const char* file : files) {
      if (library_ == nullptr) library_ = ::dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    }
    int devices = 0;
    has_gpu_ =
        library_ != nullptr && call<int(int*)>("GetDeviceCount")(&devices) == 0 && devices > 0;
    if (!has_gpu_ && named != nullptr) {
      std::fprintf(stderr, "NCCL_PERF_RUNTIME=%s: no GPU\n", named);
      std::exit(1);
    }
    if (!has_gpu_) return;
    call<int(int)>("SetDevice")(local_rank % devices);
    call<int(void**)>("StreamCreate")(&stream_);
  }
  [[nodiscard]] void* stream() const { return stream_; }
  [[nodiscard]] std::string where() const { return has_gpu_ ? runtime_ + " GPU" : "host"; }
  float* allocate(size_t bytes) {
    void* memory = nullptr;
    if (has_gpu_)
      call<int(void**, size_t)>("Malloc")(&memory, bytes);
    else
      memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return static_cast<float*>(memory);
  }
  void free(float* memory) {
    if (has_gpu_)
      call<int(void*)>("Free")(memory);
    else
      std::free(memory);
  }
  void put(float* target, const std::vector<float>& source) {
    copy(target, source.data(), source.size());
  }
  std::vector<float> get(const float* source, size_t count) {
    std::vector<float> target(count);
    copy(target.data(), source, count);
    return target;
  }
  void wait() {
    if (has_gpu_) call<int(void*)>("StreamSynchronize")(stream_);
  }

 private:
  template <typename Function>
  Function* call(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(library_, (runtime_ + name).c_str()));
  }
  void copy(float* target, const float* source, size_t count) {
    constexpr int kDefault = 4;  // cudaMemcpyDefault, hipMemcpyDefault
    if (has_gpu_)
      call<int(void*, const void*, size_t, int)>("Memcpy")(target, source, count * sizeof(float),
                                                           kDefault);
    else
      std::memcpy(target, source, count * sizeof(float));
  }
  std::string runtime_ = "cuda";
  void* library_ = nullptr;
  void* stream_ = nullptr;
  bool has_gpu_ = false;
};

struct Job {
  int rank, n_ranks;
  ncclComm_t comm;
  Memory& memory;
};

/// Element i of rank `from`'s block for rank `to`.
float value(int from, int to, size_t i) {
  return static_cast<float>((static_cast<size_t>(3 * from + to) + i) % 64);
}

/// `send` and `recv` count elements in blocks of `count`: n_ranks of them where `many`.
struct Collective {
  bool sends_many, receives_many;
  std::function<double(int)> bus_factor;
  std::function<ncclResult_t(const Job&, const float* send, float* recv, size_t count)> run;
  /// Expected element i of the block from rank `from`, on `rank`; NaN: not defined.
  std::function<float(const Job&, int from, size_t i)> want;
  /// In place: offset of the input in the output, or of the output in the input, in blocks.
  std::function<size_t(int rank)> offset;
  const char *op, *root;
};

float sum_at(const Job& job, int block, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < job.n_ranks; ++rank) sum += value(rank, block, i);
  return sum;
}

std::map<std::string, Collective> collectives() {
  const auto ring = [](int n) { return (n - 1.0) / n; };
  const auto one = [](int) { return 1.0; };
  const auto zero = [](int) -> size_t { return 0; };
  const auto own = [](int rank) { return static_cast<size_t>(rank); };
  std::map<std::string, Collective> all;
  all["all_reduce"] = {false,
                       false,
                       [ring](int n) { return 2 * ring(n); },
                       [](const Job& job, const float* send, float* recv, size_t count) {
                         return ncclAllReduce(send, recv, count, kFloat, kSum, job.comm,
                                              job.memory.stream());
                       },
                       [](const Job& job, int, size_t i) { return sum_at(job, 0, i); },
                       zero,
                       "sum",
                       "-1"};
  all["reduce_scatter"] = {true,
                           false,
                           ring,
                           [](const Job& job, const float* send, float* recv, size_t count) {
                             return ncclReduceScatter(send, recv, count, kFloat, kSum, job.comm,
                                                      job.memory.stream());
                           },
                           [](const Job& job, int, size_t i) { return sum_at(job, job.rank, i); },
                           own,
                           "sum",
                           "-1"};
  all["all_gather"] = {false,
                       true,
                       ring,
                       [](const Job& job, const float* send, float* recv, size_t count) {
                         return ncclAllGather(send, recv, count, kFloat, job.comm,
                                              job.memory.stream());
                       },
                       [](const Job&, int from, size_t i) { return value(from, 0, i); },
                       own,
                       "none",
                       "-1"};
  all["broadcast"] = {false,
                      false,
                      one,
                      [](const Job& job, const float* send, float* recv, size_t count) {
                        return ncclBroadcast(send, recv, count, kFloat, 0, job.comm,
                                             job.memory.stream());
                      },
                      [](const Job&, int, size_t i) { return value(0, 0, i); },
                      zero,
                      "none",
                      "0"};
  all["reduce"] = {false,
                   false,
                   one,
                   [](const Job& job, const float* send, float* recv, size_t count) {
                     return ncclReduce(send, recv, count, kFloat, kSum, 0, job.comm,
                                       job.memory.stream());
                   },
                   [](const Job& job, int, size_t i) {
                     return job.rank == 0 ? sum_at(job, 0, i) : std::nanf("");
                   },
                   zero,
                   "sum",
                   "0"};
  all["sendrecv"] = {
      false,
      false,
      one,
      [](const Job& job, const float* send, float* recv, size_t count) {
        const int to = (job.rank + 1) % job.n_ranks;
        const int from = (job.rank + job.n_ranks - 1) % job.n_ranks;
        check(ncclGroupStart(), "ncclGroupStart");
        check(ncclSend(send, count, kFloat, to, job.comm, job.memory.stream()), "ncclSend");
        check(ncclRecv(recv, count, kFloat, from, job.comm, job.memory.stream()), "ncclRecv");
        return ncclGroupEnd();
      },
      [](const Job& job, int, size_t i) {
        return value((job.rank + job.n_ranks - 1) % job.n_ranks, 0, i);
      },
      nullptr,
      "none",
      "-1"};
  // Sends in groups of messages, as nccl-tests does.
  all["alltoall"] = {
      true,
      true,
      ring,
      [](const Job& job, const float* send, float* recv, size_t count) {
        check(ncclGroupStart(), "ncclGroupStart");
        for (int peer = 0; peer < job.n_ranks; ++peer) {
          const size_t at = static_cast<size_t>(peer) * count;
          check(ncclSend(send + at, count, kFloat, peer, job.comm, job.memory.stream()),
                "ncclSend");
          check(ncclRecv(recv + at, count, kFloat, peer, job.comm, job.memory.stream()),
                "ncclRecv");
        }
        return ncclGroupEnd();
      },
      [](const Job& job, int from, size_t i) { return value(from, job.rank, i); },
      nullptr,
      "none",
      "-1"};
  return all;
}

struct Options {
  std::string id_file, collective = "all_reduce";
  size_t first = 8, last = size_t{32} << 20, factor = 2;
  int times = 20, warm_ups = 5;
};

struct Timed {
  double us = 0;
  double until_returns = 0;  // of `us`, until the call returns, mean
  size_t wrong = 0;
};

Timed measure(const Job& job, const Collective& what, const Options& options, size_t count,
              bool in_place) {
  const auto blocks = static_cast<size_t>(job.n_ranks);
  const size_t sends = what.sends_many ? blocks : 1, receives = what.receives_many ? blocks : 1;
  std::vector<float> input(sends * count);
  for (size_t at = 0; at < input.size(); ++at)
    input[at] = value(job.rank, static_cast<int>(at / count), at % count);
  float* const first = job.memory.allocate(std::max(sends, receives) * count * sizeof(float));
  float* const second = in_place ? first : job.memory.allocate(receives * count * sizeof(float));
  float *send = first, *recv = second;
  if (in_place && sends < receives) send = recv + what.offset(job.rank) * count;
  if (in_place && sends > receives) recv = send + what.offset(job.rank) * count;
  Timed timed;
  const auto enqueue = [&](int times) {
    for (int i = 0; i < times; ++i) check(what.run(job, send, recv, count), "a call");
  };
  const auto run = [&](int times) {
    enqueue(times);
    job.memory.wait();
  };
  job.memory.put(send, input);
  run(1);
  const std::vector<float> output = job.memory.get(recv, receives * count);
  for (size_t at = 0; at < output.size(); ++at) {
    const float want = what.want(job, static_cast<int>(at / count), at % count);
    timed.wrong += std::isnan(want) || output[at] == want ? 0 : 1;
  }
  run(options.warm_ups);
  using Microseconds = std::chrono::duration<double, std::micro>;
  const auto begin = std::chrono::steady_clock::now();
  enqueue(options.times);
  const Microseconds called = std::chrono::steady_clock::now() - begin;
  job.memory.wait();
  const Microseconds took = std::chrono::steady_clock::now() - begin;
  timed.us = took.count() / options.times;
  timed.until_returns = called.count() / options.times;
  job.memory.free(first);
  if (!in_place) job.memory.free(second);
  return timed;
}

void print(const Timed& timed, double bytes, double factor) {
  const double algorithm = bytes / timed.us / 1e3;
  std::printf("  %9.2f  %7.3f  %7.3f  %6zu", timed.us, algorithm, algorithm * factor, timed.wrong);
}

Options parse(int argc, char** argv) {
  Options options;
  const auto bytes = [](const std::string& text) {
    size_t end = 0;
    const size_t count = std::stoul(text, &end);
    const size_t shift = text.substr(end) == "K"   ? 10
                         : text.substr(end) == "M" ? 20
                         : text.substr(end) == "G" ? 30
                                                   : 0;
    return count << shift;
  };
  options.id_file = argc > 1 ? argv[1] : "";
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i], text = argv[i + 1];
    if (option == "-b") options.first = bytes(text);
    if (option == "-e") options.last = bytes(text);
    if (option == "-f") options.factor = bytes(text);
    if (option == "-n") options.times = std::stoi(text);
    if (option == "-w") options.warm_ups = std::stoi(text);
    if (option == "-c") options.collective = text;
  }
  return options;
}

ncclUniqueId meet(const Options& options, int rank) {
  ncclUniqueId id{};
  if (rank == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const std::string draft = options.id_file + ".draft";
    FILE* file = std::fopen(draft.c_str(), "wb");
    std::fwrite(&id, sizeof id, 1, file);
    std::fclose(file);
    std::rename(draft.c_str(), options.id_file.c_str());
    return id;
  }
  FILE* file = nullptr;
  while ((file = std::fopen(options.id_file.c_str(), "rb")) == nullptr) ::usleep(1'000);
  const size_t read = std::fread(&id, sizeof id, 1, file);
  std::fclose(file);
  if (read != 1) std::exit(1);
  return id;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const auto all = collectives();
  const auto found = all.find(options.collective);
  if (options.id_file.empty() || found == all.end()) {
    std::fprintf(stderr,
                 "nccl_perf ID_FILE [-b BYTES] [-e BYTES] [-f FACTOR] [-n TIMES] "
                 "[-w WARM_UPS] [-c COLLECTIVE]\n");
    return 2;
  }
  const int rank = number("RANK", 0), n_ranks = number("WORLD_SIZE", 1);
  Memory memory(number("LOCAL_RANK", rank));
  const auto begin = std::chrono::steady_clock::now();
  const ncclUniqueId id = meet(options, rank);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, n_ranks, id, rank), "ncclCommInitRank");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  const Job job{rank, n_ranks, comm, memory};
  int version = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  if (rank == 0) {
    std::printf("# nccl version %d, %d ranks, memory of the %s, id and init %.1f ms\n", version,
                n_ranks, memory.where().c_str(), took.count());
    std::printf(
        "# %s: size(B) count type redop root | out of place: time(us) algbw busbw #wrong | "
        "in place: the same (GB/s)\n",
        options.collective.c_str());
  }
  const Collective& what = found->second;
  size_t wrong = 0;
  const size_t blocks = what.sends_many || what.receives_many ? static_cast<size_t>(n_ranks) : 1;
  for (size_t bytes = options.first; bytes <= options.last; bytes *= options.factor) {
    const size_t count = std::max<size_t>(bytes / sizeof(float) / blocks, 1);
    const auto size = static_cast<double>(count * blocks * sizeof(float));
    const Timed apart = measure(job, what, options, count, false);
    Timed together;
    if (what.offset) together = measure(job, what, options, count, true);
    wrong += apart.wrong + together.wrong;
    if (rank != 0) continue;
    std::printf("%12.0f %12zu    float %7s %5s", size, count * blocks, what.op, what.root);
    print(apart, size, what.bus_factor(n_ranks));
    if (what.offset) print(together, size, what.bus_factor(n_ranks));
    std::printf("\n# until a call returns: %.2f us\n", apart.until_returns);
  }
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  return wrong == 0 ? 0 : 1;
}
