// On a GPU: what a running kernel and the host see of each other's writes in pinned memory. It uses
// HIP's API only. With FORWARD_HOSTILE=non-coherent it requires that they see nothing in memory
// without hipHostMallocCoherent; otherwise it prints whether they do. Skips without a GPU.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <hip/hiprtc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "hip/hip.h"

namespace {

constexpr int kSkipped = 77;  // The status that ctest counts as skipped.
constexpr std::size_t kWords = 40000;

// poll: writes odd words of `data` and byte 1 of word 0, says that it runs, and waits until the
// host sets `flag` or `stop`. It reports the flag as it last saw it. The loop is bounded: about 10
// s.
constexpr char kProgram[] = R"hip(
__device__ inline unsigned load(const unsigned* at) {
  return __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
__device__ inline void store(unsigned* at, unsigned value) {
  __hip_atomic_store(at, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
extern "C" __global__ void poll(const unsigned* flag, unsigned* data, unsigned words,
                                unsigned* started, const unsigned* stop, unsigned* seen) {
  reinterpret_cast<volatile unsigned char*>(data)[1] = 0xab;
  for (unsigned i = 1; i < words; i += 2) static_cast<volatile unsigned*>(data)[i] = i;
  __threadfence_system();
  store(started, 1);
  for (unsigned i = 0; i < 5000000 && load(flag) == 0 && load(stop) == 0; ++i) {
    __builtin_amdgcn_s_sleep(32);
  }
  store(seen, load(flag));
}
extern "C" __global__ void copy(const unsigned* from, unsigned* to, unsigned words) {
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}
extern "C" __global__ void add(unsigned* words, unsigned number, unsigned value) {
  for (unsigned i = threadIdx.x; i < number; i += blockDim.x) words[i] += value;
}
)hip";

bool in_mode() {
  const char* modes = std::getenv("FORWARD_HOSTILE");
  return modes != nullptr && std::string_view(modes).find("non-coherent") != std::string::npos;
}

std::string compile() {
  hiprtcProgram program = nullptr;
  REQUIRE(hiprtcCreateProgram(&program, kProgram, "noncoherent.hip", 0, nullptr, nullptr) ==
          HIPRTC_SUCCESS);
  hipDeviceProp_t properties;
  REQUIRE(hipGetDeviceProperties(&properties, 0) == hipSuccess);
  const std::string architecture = std::string("--offload-arch=") + properties.gcnArchName;
  const char* options[] = {architecture.c_str(), "-std=c++17"};
  REQUIRE(hiprtcCompileProgram(program, 2, options) == HIPRTC_SUCCESS);
  std::size_t bytes = 0;
  REQUIRE(hiprtcGetCodeSize(program, &bytes) == HIPRTC_SUCCESS);
  std::string code(bytes, '\0');
  REQUIRE(hiprtcGetCode(program, code.data()) == HIPRTC_SUCCESS);
  CHECK(hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS);
  return code;
}

hipFunction_t kernel(const char* name) {
  static const hipModule_t module = [] {
    hipModule_t loaded = nullptr;
    REQUIRE(hipModuleLoadData(&loaded, compile().c_str()) == hipSuccess);
    return loaded;
  }();
  hipFunction_t function = nullptr;
  REQUIRE(hipModuleGetFunction(&function, module, name) == hipSuccess);
  return function;
}

// Pinned memory of `words` 32-bit words, all 0.
class Pinned {
 public:
  Pinned(std::size_t words, unsigned flags) {
    REQUIRE(hipHostMalloc(reinterpret_cast<void**>(&words_), words * 4, flags) == hipSuccess);
    std::memset(words_, 0, words * 4);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { CHECK(hipHostFree(words_) == hipSuccess); }

  [[nodiscard]] unsigned* get() const { return words_; }
  volatile unsigned& operator[](std::size_t at) const { return words_[at]; }

 private:
  unsigned* words_ = nullptr;
};

class Stream {
 public:
  Stream() { REQUIRE(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking) == hipSuccess); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { CHECK(hipStreamDestroy(stream_) == hipSuccess); }

  [[nodiscard]] hipStream_t get() const { return stream_; }
  void wait() const { REQUIRE(hipStreamSynchronize(stream_) == hipSuccess); }

 private:
  hipStream_t stream_ = nullptr;
};

template <typename... Arguments>
hipError_t launch(const Stream& stream, const char* name, unsigned threads, Arguments... values) {
  void* arguments[] = {&values...};
  return hipModuleLaunchKernel(kernel(name), 1, 1, 1, threads, 1, 1, 0, stream.get(), arguments,
                               nullptr);
}

// A running kernel `poll`. `started`, `stop` and `seen` are coherent.
class Poll {
 public:
  Poll(const Pinned& flag, const Pinned& data) : control_(3, hipHostMallocCoherent) {
    REQUIRE(launch(stream_, "poll", 1, flag.get(), data.get(), static_cast<unsigned>(kWords),
                   control_.get(), control_.get() + 1, control_.get() + 2) == hipSuccess);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (control_[0] == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    CHECK(control_[0] == 1);
  }

  /// Returns whether the kernel ends within 200 ms, without the word `stop`.
  [[nodiscard]] bool ends() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (std::chrono::steady_clock::now() < deadline) {
      if (hipStreamQuery(stream_.get()) == hipSuccess) return true;
    }
    return false;
  }

  /// Stops the kernel; returns the flag as the kernel last saw it.
  unsigned stop() {
    control_[1] = 1;
    stream_.wait();
    return control_[2];
  }

 private:
  Stream stream_;
  Pinned control_;
};

// The words that the running kernel wrote, as the host sees them.
std::size_t written(const Pinned& data) {
  std::size_t seen = 0;
  for (std::size_t i = 1; i < kWords; i += 2) seen += data[i] == i ? 1 : 0;
  return seen;
}

}  // namespace

TEST_CASE("in coherent memory, a running kernel and the host see each other's writes") {
  const Pinned flag(1, hipHostMallocCoherent);
  const Pinned data(kWords, hipHostMallocCoherent);
  Poll poll(flag, data);
  CHECK(written(data) == kWords / 2);
  flag[0] = 5;
  CHECK(poll.ends());
  CHECK(poll.stop() == 5);
}

TEST_CASE("in default memory, they meet at the kernel's boundaries") {
  const Pinned flag(1, hipHostMallocDefault);
  const Pinned data(kWords, hipHostMallocDefault);
  Poll poll(flag, data);
  const std::size_t early = written(data);
  flag[0] = 5;
  // Neighbours of what the kernel wrote: even words, and bytes of a word.
  for (std::size_t i = 2; i < kWords; i += 2) data[i] = static_cast<unsigned>(i);
  reinterpret_cast<volatile unsigned char*>(data.get())[0] = 0xcd;
  const bool ended = poll.ends();
  const unsigned seen = poll.stop();
  std::printf("default memory: the kernel %s the host's write, the host saw %zu of %zu words\n",
              seen == 5 ? "saw" : "did not see", early, kWords / 2);
  if (in_mode()) {
    CHECK(early == 0);
    CHECK_FALSE(ended);
    CHECK(seen == 0);
  }
  CHECK(data[0] == 0xabcd);
  std::size_t right = 0;
  for (std::size_t i = 1; i < kWords; ++i) right += data[i] == i ? 1 : 0;
  CHECK(right == kWords - 1);
  Poll next(flag, data);
  CHECK(next.ends());
  CHECK(next.stop() == 5);
}

TEST_CASE("kernels of two streams lose no write") {
  const Pinned flag(1, hipHostMallocDefault);
  const Pinned data(kWords, hipHostMallocDefault);
  const Pinned other(kWords, hipHostMallocDefault);
  const Stream stream;
  // A driver may load a kernel at its first launch, and may wait for running kernels to do so.
  CHECK(launch(stream, "add", 256, other.get(), 0U, 2U) == hipSuccess);
  stream.wait();
  Poll poll(flag, data);
  for (std::size_t i = 0; i < kWords; ++i) other[i] = 3;
  for (int i = 0; i < 10; ++i) {
    CHECK(launch(stream, "add", 256, other.get(), static_cast<unsigned>(kWords), 2U) == hipSuccess);
  }
  stream.wait();
  std::size_t right = 0;
  for (std::size_t i = 0; i < kWords; ++i) right += other[i] == 23 ? 1 : 0;
  CHECK(right == kWords);
  (void)poll.stop();
  CHECK(written(data) == kWords / 2);
}

TEST_CASE("copies and fills access the host's memory, and kernels see the result") {
  const Stream stream;
  const Pinned from(kWords, hipHostMallocDefault);
  const Pinned to(kWords, hipHostMallocDefault);
  void* device = nullptr;
  REQUIRE(hipMalloc(&device, kWords * 4) == hipSuccess);
  for (std::size_t i = 0; i < kWords; ++i) from[i] = static_cast<unsigned>(7 * i);
  const auto copy = [&](void* target, const void* source, hipMemcpyKind kind) {
    CHECK(hipMemcpyAsync(target, source, kWords * 4, kind, stream.get()) == hipSuccess);
  };
  copy(device, from.get(), hipMemcpyHostToDevice);
  copy(to.get(), device, hipMemcpyDeviceToHost);
  // The kernels read what the copy and the fill wrote, and the last copy reads what they wrote.
  const unsigned words = kWords;
  CHECK(launch(stream, "add", 256, to.get(), words, 1U) == hipSuccess);
  CHECK(hipMemsetAsync(to.get(), 0, 4, stream.get()) == hipSuccess);
  CHECK(launch(stream, "add", 256, to.get(), words, 2U) == hipSuccess);
  copy(device, to.get(), hipMemcpyDeviceToHost);
  CHECK(launch(stream, "copy", 256, static_cast<unsigned*>(device), from.get(), words) ==
        hipSuccess);
  stream.wait();
  CHECK(from[0] == 2);
  std::size_t right = 0;
  for (std::size_t i = 1; i < kWords; ++i) right += from[i] == 7 * i + 3 ? 1 : 0;
  CHECK(right == kWords - 1);
  CHECK(hipFree(device) == hipSuccess);
}

TEST_CASE("a captured kernel meets the host at each launch of its graph") {
  const Stream stream;
  const Pinned data(kWords, hipHostMallocDefault);
  auto* unrelated = new Pinned(kWords, hipHostMallocDefault);
  hipGraph_t graph = nullptr;
  hipGraphExec_t executable = nullptr;
  REQUIRE(hipStreamBeginCapture(stream.get(), hipStreamCaptureModeRelaxed) == hipSuccess);
  CHECK(launch(stream, "add", 256, data.get(), static_cast<unsigned>(kWords), 1U) == hipSuccess);
  REQUIRE(hipStreamEndCapture(stream.get(), &graph) == hipSuccess);
  REQUIRE(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0) == hipSuccess);
  // A graph outlives memory that its kernels do not use.
  delete unrelated;
  for (unsigned round = 1; round <= 3; ++round) {
    for (std::size_t i = 0; i < kWords; ++i) data[i] = 10 * round;
    REQUIRE(hipGraphLaunch(executable, stream.get()) == hipSuccess);
    stream.wait();
    std::size_t right = 0;
    for (std::size_t i = 0; i < kWords; ++i) right += data[i] == 10 * round + 1 ? 1 : 0;
    CHECK(right == kWords);
  }
  CHECK(hipGraphExecDestroy(executable) == hipSuccess);
  CHECK(hipGraphDestroy(graph) == hipSuccess);
}

TEST_CASE("the host and the device have one address for pinned memory, and it can be had again") {
  for (int i = 0; i < 20; ++i) {
    const Pinned memory(kWords, hipHostMallocDefault);
    void* device = nullptr;
    CHECK(hipHostGetDevicePointer(&device, memory.get(), 0) == hipSuccess);
    CHECK(device == memory.get());
    hipPointerAttribute_t attributes;
    CHECK(hipPointerGetAttributes(&attributes, memory.get()) == hipSuccess);
    CHECK(attributes.type == hipMemoryTypeHost);
    CHECK(attributes.hostPointer == memory.get());
    CHECK(attributes.devicePointer == memory.get());
  }
}

int main(int argc, char** argv) {
  int devices = 0;
  if (hipGetDeviceCount(&devices) != hipSuccess || devices == 0) {
    std::printf("noncoherent_gpu_test: SKIPPED: THERE IS NO GPU HERE\n");
    return kSkipped;
  }
  std::printf("noncoherent_gpu_test: mode non-coherent is %s\n", in_mode() ? "on" : "off");
  return doctest::Context(argc, argv).run();
}
