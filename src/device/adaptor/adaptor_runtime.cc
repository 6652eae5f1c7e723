#include "device/adaptor/adaptor_runtime.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "adaptor/calls.h"
#include "base/printable.h"

namespace hetccl::device {
namespace {

using gpu::Api;
using Part = adaptor::Part<hetcclDeviceAdaptor>;

constexpr int kThrew = INT_MIN, kNoMemory = INT_MIN + 1;
constexpr int kMostDevices = 1024;

// Calls the adaptor. Catches exceptions, which it has promised not to throw.
template <typename... Types>
auto guarded(int (*call)(Types...)) {
  return [call](Types... arguments) noexcept {
    try {
      return call(arguments...);
    } catch (...) {
      return kThrew;
    }
  };
}

// Calls an adaptor function that allocates; an error if it returns no memory.
auto allocating(int (*call)(void**, size_t)) {
  return [call = guarded(call)](void** memory, size_t bytes) {
    *memory = nullptr;
    const int code = call(memory, bytes);
    return code == 0 && *memory == nullptr ? kNoMemory : code;
  };
}

// Encodes device `i` as a thread's context; null: no context.
void* context_of(int device) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(device) + 1);
}
int device_of(const void* context) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
}

// Reads a text that the adaptor has filled in.
template <size_t kBytes>
std::string text_of(const char (&text)[kBytes]) {
  return printable(std::string(text, strnlen(text, kBytes)), kBytes);
}

void describe_by(Api& api, const hetcclDeviceAdaptor& calls) {
  const auto describe = [call = guarded(calls.describe)](int device,
                                                         hetcclDeviceDescription* description) {
    *description = {};
    return call(device, description);
  };
  const auto put = [](const std::string& from, char* text, int bytes) {
    const size_t length = std::min(from.size(), static_cast<size_t>(bytes) - 1);
    std::memcpy(text, from.data(), length);
    text[length] = 0;
  };
  api.device_count = guarded(calls.count);
  api.device_name = [=](char* text, int bytes, int device) {
    hetcclDeviceDescription description;
    const int code = describe(device, &description);
    if (code == 0) put(text_of(description.model), text, bytes);
    return code;
  };
  api.device_bus_id = [=](char* text, int bytes, int device) {
    hetcclDeviceDescription description;
    const int code = describe(device, &description);
    if (code == 0) put(text_of(description.bus_id), text, bytes);
    return code;
  };
  api.device_architecture = [=](std::string* architecture, int device) {
    hetcclDeviceDescription description;
    const int code = describe(device, &description);
    if (code == 0) *architecture = text_of(description.architecture);
    return code;
  };
  api.device_multiprocessors = [](int* count, int) {
    *count = 1;  // asked for kernels compiled by hetccl, of which there are none
    return 0;
  };
}

void be_current_by(Api& api, const hetcclDeviceAdaptor& calls) {
  api.retain_context = [use = guarded(calls.use)](void** context, int device) {
    *context = context_of(device);
    return use(device);
  };
  api.release_context = [](int) { return 0; };
  api.get_context = [current = guarded(calls.current)](void** context) {
    int device = -1;
    const int code = current(&device);
    *context = code == 0 && device >= 0 ? context_of(device) : nullptr;
    return code;
  };
  api.set_context = [use = guarded(calls.use)](void* context) {
    return use(device_of(context));  // null becomes -1
  };
  api.current_device = guarded(calls.current);
  api.stand_apart = [] { return 0; };
}

// Returns the divisor for the adaptor. A quotient that is no whole number never comes here: the
// host divides by it, because this device lacks device::kEncodes.
uint32_t divisor_of(const Reduction& reduction) {
  const Divisor& by = reduction.divisor;
  if (reduction.op != RedOp::Avg) return 1;
  return by.scaled && !is_integer(reduction.type) ? static_cast<uint32_t>(by.quotient()) : by.ranks;
}

void reduce_by(Api& api, const hetcclDeviceAdaptor& calls) {
  if (calls.reduce == nullptr) return;
  api.reduces = [call = guarded(calls.reduces)](DataType type, RedOp op) {
    return op != RedOp::PreMulSum &&
           call(static_cast<hetcclDataType_t>(type), static_cast<hetcclRedOp_t>(op)) == 1;
  };
  api.reduce = [call = guarded(calls.reduce)](void* stream, const Reduction& reduction) {
    hetcclDeviceReduction work{};
    work.size = sizeof work;
    work.result = reduction.dst;
    work.sources = reduction.srcs;
    work.n_sources = static_cast<size_t>(reduction.n_srcs);
    work.count = reduction.count;
    work.type = static_cast<hetcclDataType_t>(reduction.type);
    work.op = static_cast<hetcclRedOp_t>(reduction.op);
    work.divisor = divisor_of(reduction);
    return call(stream, &work);
  };
}

Api make_api(const std::shared_ptr<const adaptor::Adaptor>& adaptor) {
  const Part& part = *adaptor->device;
  const hetcclDeviceAdaptor& calls = part.calls;
  Api api;
  api.vendor = part.name;
  api.version = part.version;
  api.path = adaptor->path;
  api.error_text = [adaptor](int code) {
    if (code == kThrew) return "an exception has left the adaptor";
    if (code == kNoMemory) return "it has made none, but returned success";
    return adaptor->device->calls.error_text(code);
  };
  describe_by(api, calls);
  be_current_by(api, calls);
  api.allocate = allocating(calls.allocate);
  api.free = guarded(calls.free);
  api.allocate_pinned = allocating(calls.allocate_pinned);
  api.free_pinned = guarded(calls.free_pinned);
  api.pin = guarded(calls.pin);
  api.unpin = guarded(calls.unpin);
  api.memory_owner = [](const void*, int* device, bool*) {
    *device = -1;  // the adaptor does not tell
    return 0;
  };
  api.create_stream = guarded(calls.create_stream);
  api.destroy_stream = guarded(calls.destroy_stream);
  api.is_capturing = [](void*, int* capturing) { return *capturing = 0; };
  if (calls.is_capturing != nullptr) api.is_capturing = guarded(calls.is_capturing);
  api.create_event = guarded(calls.create_event);
  api.destroy_event = guarded(calls.destroy_event);
  api.record = guarded(calls.record);
  api.wait = guarded(calls.wait);
  const auto on_word = [](auto call) {
    return [call](void* stream, void* word, uint32_t value) {
      return call(stream, static_cast<uint32_t*>(word), value);
    };
  };
  api.wait_word = on_word(guarded(calls.wait_word));
  api.write_word = on_word(guarded(calls.write_word));
  api.copy = [call = guarded(calls.copy)](void* to, const void* from, size_t bytes, void* stream) {
    return call(stream, to, from, bytes);
  };
  api.call_host = guarded(calls.call_host);
  reduce_by(api, calls);
  return api;
}

}  // namespace

Result<std::shared_ptr<const gpu::Api>> load_adaptor_runtime(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor) {
  const Part& part = *adaptor->device;
  int devices = 0;
  HETCCL_TRY(adaptor::ask(part, "counting devices", [&] {
               return part.calls.count(&devices);
             }).with(adaptor->path));
  if (devices < 1)
    return error(ErrorCode::Unsupported, "the adaptor %s finds no device", adaptor->path.c_str());
  if (devices > kMostDevices)
    return error(ErrorCode::Unsupported, "the adaptor %s finds %d devices: at most %d can be",
                 adaptor->path.c_str(), devices, kMostDevices);
  return std::make_shared<const Api>(make_api(adaptor));
}

}  // namespace hetccl::device
