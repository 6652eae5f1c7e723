// A fake of AMD's HIP runtime and of hipRTC: a library of that name with two devices. Streams are
// threads, and what the host may not touch of a device's memory it cannot. Its compiler makes a
// list of hetccl's kernels, and a launch of one runs its twin of the host.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/encoding.h"
#include "device/device.h"
#include "device/gpu/hip.h"
#include "device/host/stream_tasks.h"
#include "device/kernels/kernels.h"
#include "fake/device_memory.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define CALL(name)    \
  EXPORT int name() { \
    return 0;         \
  }

namespace {

using namespace hetccl;
using namespace hetccl::device;
namespace hip = hetccl::device::gpu::hip;

constexpr int kDevices = 2, kOutOfMemory = 2, kNotFound = 500;
constexpr size_t kDeviceBytes = size_t{4} << 30U;

thread_local int current = 0, last_error = 0;

// All that lives as long as the process: its threads may end after `main` has.
struct Memory {
  Memory() {
    for (fake::DeviceMemory& one : devices) {
      if (!one.open(kDeviceBytes).ok()) std::abort();
    }
  }
  static Memory& get() {
    static auto* const once = new Memory;
    return *once;
  }
  [[nodiscard]] std::byte* reach(const void* address) const {
    for (const fake::DeviceMemory& one : devices) {
      std::byte* const found = one.alias(address);
      if (found != address) return found;
    }
    return static_cast<std::byte*>(const_cast<void*>(address));
  }

  std::array<fake::DeviceMemory, kDevices> devices;
  std::mutex mutex;                                            // guards what follows
  std::map<const std::byte*, std::pair<size_t, int>> managed;  // bytes, and whose
  std::map<void*, size_t> pinned;
};

void* map_address(void*, const void* address) {
  return Memory::get().reach(address);
}

// It runs on after its destruction, until it has done what it has. Without work its thread sleeps,
// and where its work waits for something it looks again and again, ever more rarely.
class FakeStream {
 public:
  FakeStream() : queue_(map_address, nullptr) {
    std::thread([this] { run(); }).detach();
  }
  template <typename Push>
  int enqueue(const Push& push) {
    const std::lock_guard lock(mutex_);
    push(queue_);
    changed_.notify_one();
    return 0;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (int idle = 0; !(closed_ && queue_.empty());) {  // polls that moved nothing
      changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
      lock.unlock();
      idle = queue_.poll() ? 0 : std::min(idle + 1, 100);
      if (idle > 0) std::this_thread::sleep_for(std::chrono::microseconds(10 * idle));
      lock.lock();
    }
    lock.unlock();
    delete this;
  }

  TaskQueue queue_;
  std::mutex mutex_;  // guards what is enqueued, and what follows
  std::condition_variable changed_;
  bool closed_ = false;
};

struct FakeEvent {
  std::mutex mutex;
  HostEvent event;
};

FakeStream& stream_of(void* stream) {
  static auto* const defaults = new std::array<FakeStream, kDevices>;
  return stream == nullptr ? (*defaults)[static_cast<size_t>(current)]
                           : *static_cast<FakeStream*>(stream);
}

struct Kernel {
  enum class Kind { WaitFlag, WriteFlag, CopyList, Reduce, Encoded, Batch } kind{};
  DataType type{};
  RedOp op{};
  Format format{};
};

const std::map<std::string, Kernel>& kernels_by_name() {
  static const auto* const all = [] {
    auto* const made = new std::map<std::string, Kernel>;
    (*made)[kernels::kWaitFlag] = {.kind = Kernel::Kind::WaitFlag};
    (*made)[kernels::kWriteFlag] = {.kind = Kernel::Kind::WriteFlag};
    (*made)[kernels::kCopyList] = {.kind = Kernel::Kind::CopyList};
    for (int i = 0; i < 256; ++i) {
      const auto type = static_cast<DataType>(i);
      if (!is_valid(type)) continue;
      (*made)[kernels::batch_name_of(type)] = {.kind = Kernel::Kind::Batch, .type = type};
      for (const RedOp op : kernels::kOps) {
        if (!applies(op, type)) continue;
        const DataType kind = kernels::kind_of(type, op);
        (*made)[kernels::name_of(type, op)] = {
            .kind = Kernel::Kind::Reduce, .type = kind, .op = op};
      }
      for (const Format format : kFormats) {
        if (!has_encoding(type)) continue;
        (*made)[kernels::name_of(type, format)] = {
            .kind = Kernel::Kind::Encoded, .type = type, .format = format};
      }
    }
    return made;
  }();
  return *all;
}

Reduction reduction_of(const kernels::Arguments& given, DataType type, RedOp op) {
  Reduction reduction{.dst = given.dst, .n_srcs = static_cast<int>(given.n_srcs)};
  std::copy_n(given.srcs, given.n_srcs, reduction.srcs);
  reduction.count = given.count;
  reduction.type = type;
  reduction.op = op;
  if (op == RedOp::Avg) reduction.divisor = Divisor(given.divisor, given.down == 1);
  std::memcpy(reduction.factor.element, &given.factor, sizeof given.factor);
  reduction.encoded = given.encoded;
  reduction.encoding.block = static_cast<uint16_t>(given.block);
  reduction.encoding.stochastic = given.stochastic != 0;
  reduction.salt = given.salt;
  reduction.first_element = given.first_element;
  reduction.residual = given.residual;
  return reduction;
}

Flag& flag_of(const void* word) {
  return *static_cast<Flag*>(const_cast<void*>(word));
}

void push_batch(TaskQueue& queue, const kernels::Batch& batch, DataType type) {
  const kernels::Arguments* work = batch.works;
  for (uint32_t i = 0; i < batch.n_steps; ++i) {
    const kernels::BatchStep& step = batch.steps[i];
    switch (step.kind) {
      case kernels::BatchStep::Kind::Wait:
        push_wait_flag(queue, flag_of(step.word), step.value);
        break;
      case kernels::BatchStep::Kind::Write:
        push_write_flag(queue, flag_of(step.word), step.value);
        break;
      case kernels::BatchStep::Kind::Copy:
        push_copy(queue, work->dst, work->srcs[0], work->count);
        ++work;
        break;
      case kernels::BatchStep::Kind::Reduce:
        push_reduce(queue, reduction_of(*work, type, kernels::kOps[step.value]));
        ++work;
        break;
    }
  }
}

template <typename T>
const T& argument(void** arguments, int place) {
  return *static_cast<const T*>(arguments[place]);
}

void launch(const Kernel& kernel, TaskQueue& queue, void** arguments) {
  switch (kernel.kind) {
    case Kernel::Kind::WaitFlag:
      push_wait_flag(queue, flag_of(argument<void*>(arguments, 0)),
                     argument<uint32_t>(arguments, 1));
      break;
    case Kernel::Kind::WriteFlag:
      push_write_flag(queue, flag_of(argument<void*>(arguments, 0)),
                      argument<uint32_t>(arguments, 1));
      break;
    case Kernel::Kind::CopyList: {
      const auto& list = argument<kernels::CopyList>(arguments, 0);
      for (uint32_t i = 0; i < list.n; ++i)
        push_copy(queue, list.copies[i].dst, list.copies[i].src, list.copies[i].bytes);
      break;
    }
    case Kernel::Kind::Reduce:
      push_reduce(queue,
                  reduction_of(argument<kernels::Arguments>(arguments, 0), kernel.type, kernel.op));
      break;
    case Kernel::Kind::Encoded: {
      const auto& given = argument<kernels::Arguments>(arguments, 0);
      Reduction whole =
          reduction_of(given, kernel.type, given.divisor > 1 ? RedOp::Avg : RedOp::Sum);
      whole.encoding.format = kernel.format;
      push_reduce(queue, whole);
      break;
    }
    case Kernel::Kind::Batch:
      push_batch(queue, argument<kernels::Batch>(arguments, 0), kernel.type);
      break;
  }
}

int fail(int code) {
  last_error = code;
  return code;
}

int allocate_for_host(void** memory, size_t bytes) {
  void* const mapped = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return fail(kOutOfMemory);
  *memory = mapped;
  return 0;
}

}  // namespace

EXPORT int hipInit(unsigned) {
  return 0;
}
EXPORT int hipRuntimeGetVersion(int* version) {
  *version = 60443484;
  return 0;
}
EXPORT const char* hipGetErrorString(int code) {
  return code == kOutOfMemory ? "out of memory" : "the fake HIP runtime refuses";
}
EXPORT int hipPeekAtLastError() {
  return last_error;
}
EXPORT int hipGetLastError() {
  return std::exchange(last_error, 0);
}
EXPORT int hipGetDeviceCount(int* count) {
  *count = kDevices;
  return 0;
}
EXPORT int hipGetDevice(int* device) {
  *device = current;
  return 0;
}
EXPORT int hipSetDevice(int device) {
  if (device < 0 || device >= kDevices) return fail(hip::kInvalidDevice);
  current = device;
  return 0;
}
EXPORT int hipDeviceGetName(char* text, int bytes, int) {
  std::snprintf(text, static_cast<size_t>(bytes), "a fake GPU");
  return 0;
}
EXPORT int hipDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:c%d:00.0", device);
  return 0;
}
EXPORT int hipDeviceGetAttribute(int* value, int, int) {
  *value = 4;
  return 0;
}
EXPORT int hipGetDevicePropertiesR0600(void* properties, int) {
  std::strcpy(static_cast<char*>(properties) + hip::kArchitectureOffset, "gfx90a:sramecc+:xnack-");
  return 0;
}

EXPORT int hipMalloc(void** memory, size_t bytes) {
  auto made = Memory::get().devices[static_cast<size_t>(current)].allocate(bytes);
  if (!made.ok()) return fail(kOutOfMemory);
  *memory = made.value();
  return 0;
}
EXPORT int hipMallocManaged(void** memory, size_t bytes, unsigned) {
  const int code = allocate_for_host(memory, bytes);
  if (code != 0) return code;
  const std::lock_guard lock(Memory::get().mutex);
  Memory::get().managed[static_cast<std::byte*>(*memory)] = {bytes, current};
  return 0;
}
EXPORT int hipFree(void* memory) {
  Memory& all = Memory::get();
  for (fake::DeviceMemory& one : all.devices) {
    if (one.alias(memory) == memory) continue;
    one.free(memory);
    return 0;
  }
  const std::lock_guard lock(all.mutex);
  const auto found = all.managed.find(static_cast<std::byte*>(memory));
  if (found == all.managed.end()) return fail(hip::kInvalidValue);
  munmap(memory, found->second.first);
  all.managed.erase(found);
  return 0;
}
EXPORT int hipHostMalloc(void** memory, size_t bytes, unsigned) {
  const int code = allocate_for_host(memory, bytes);
  if (code != 0) return code;
  const std::lock_guard lock(Memory::get().mutex);
  Memory::get().pinned[*memory] = bytes;
  return 0;
}
EXPORT int hipHostFree(void* memory) {
  const std::lock_guard lock(Memory::get().mutex);
  munmap(memory, Memory::get().pinned[memory]);
  Memory::get().pinned.erase(memory);
  return 0;
}
EXPORT int hipHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return 0;
}
EXPORT int hipPointerGetAttributes(hip::PointerAttributes* attributes, const void* address) {
  Memory& all = Memory::get();
  *attributes = {};
  for (int i = 0; i < kDevices; ++i) {
    if (all.devices[static_cast<size_t>(i)].alias(address) == address) continue;
    *attributes = {.type = hip::kDevice, .device = i};
    return 0;
  }
  const auto* const byte = static_cast<const std::byte*>(address);
  const std::lock_guard lock(all.mutex);
  auto found = all.managed.upper_bound(byte);
  if (found == all.managed.begin() || byte >= (--found)->first + found->second.first)
    return fail(hip::kInvalidValue);
  *attributes = {.type = hip::kManaged, .device = found->second.second, .managed = 1};
  return 0;
}
EXPORT int hipMemcpy(void* to, const void* from, size_t bytes, int) {
  std::memcpy(Memory::get().reach(to), Memory::get().reach(from), bytes);
  return 0;
}

EXPORT int hipStreamCreateWithFlags(void** stream, unsigned) {
  *stream = new FakeStream;
  return 0;
}
EXPORT int hipStreamDestroy(void* stream) {
  static_cast<FakeStream*>(stream)->close();
  return 0;
}
EXPORT int hipStreamIsCapturing(void*, int* capturing) {
  *capturing = 0;
  return 0;
}
EXPORT int hipEventCreateWithFlags(void** event, unsigned) {
  *event = new FakeEvent;
  return 0;
}
EXPORT int hipEventDestroy(void* event) {
  delete static_cast<FakeEvent*>(event);
  return 0;
}
EXPORT int hipEventRecord(void* event, void* stream) {
  const std::lock_guard lock(static_cast<FakeEvent*>(event)->mutex);
  return stream_of(stream).enqueue(
      [&](TaskQueue& queue) { static_cast<FakeEvent*>(event)->event.record(queue); });
}
EXPORT int hipStreamWaitEvent(void* stream, void* event, unsigned) {
  const std::lock_guard lock(static_cast<FakeEvent*>(event)->mutex);
  return stream_of(stream).enqueue(
      [&](TaskQueue& queue) { static_cast<FakeEvent*>(event)->event.wait(queue); });
}
EXPORT int hipMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
  return stream_of(stream).enqueue([&](TaskQueue& queue) { push_copy(queue, to, from, bytes); });
}
EXPORT int hipLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  return stream_of(stream).enqueue([&](TaskQueue& queue) { push_call(queue, function, argument); });
}
// Waits for the default stream, which hetccl's own streams have joined.
EXPORT int hipDeviceSynchronize() {
  std::promise<void> done;
  stream_of(nullptr).enqueue([&](TaskQueue& queue) {
    push_call(queue, [](void* end) { static_cast<std::promise<void>*>(end)->set_value(); }, &done);
  });
  done.get_future().wait();
  return 0;
}
EXPORT int hipModuleGetFunction(const void** kernel, void*, const char* name) {
  const auto found = kernels_by_name().find(name);
  if (found == kernels_by_name().end()) return fail(kNotFound);
  *kernel = &found->second;
  return 0;
}
EXPORT int hipModuleLaunchKernel(void* kernel, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, void* stream, void** arguments, void**) {
  return stream_of(stream).enqueue(
      [&](TaskQueue& queue) { launch(*static_cast<const Kernel*>(kernel), queue, arguments); });
}
CALL(hipHostRegister)
CALL(hipHostUnregister)
CALL(hipModuleLoadData)
CALL(hipModuleUnload)
CALL(hipThreadExchangeStreamCaptureMode)

// An image has the names of its kernels, as an object file has.
static const std::string& image() {
  static const std::string* const names = [] {
    auto* const text = new std::string;
    for (const auto& [name, kernel] : kernels_by_name())
      text->append(name.c_str(), name.size() + 1);
    return text;
  }();
  return *names;
}
EXPORT int hiprtcVersion(int* major, int* minor) {
  *major = *minor = 0;
  return 0;
}
EXPORT int hiprtcGetProgramLogSize(void*, size_t* bytes) {
  *bytes = 0;
  return 0;
}
EXPORT int hiprtcGetCodeSize(void*, size_t* bytes) {
  *bytes = image().size();
  return 0;
}
EXPORT int hiprtcGetCode(void*, char* code) {
  std::memcpy(code, image().data(), image().size());
  return 0;
}
EXPORT const char* hiprtcGetErrorString(int) {
  return "the fake compiler refuses";
}
CALL(hiprtcCreateProgram)
CALL(hiprtcCompileProgram)
CALL(hiprtcGetProgramLog)
CALL(hiprtcDestroyProgram)
