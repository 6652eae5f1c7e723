#include "device/gpu/api.h"

#include <utility>

namespace hetccl::device::gpu {
namespace {

constexpr int kCaptureModeRelaxed = 2;  // CUDA's and HIP's value

// Makes `call` safe during graph capture. While a thread captures in the default mode, the runtime
// refuses calls that wait for the device, and breaks that graph, unless the calling thread has
// changed its own mode.
template <typename... Arguments>
void set_apart(const std::function<int(int*)>& exchange, std::function<int(Arguments...)>& call) {
  call = [exchange, inner = std::move(call)](Arguments... arguments) {
    int mode = kCaptureModeRelaxed;
    exchange(&mode);
    const int code = inner(arguments...);
    exchange(&mode);
    return code;
  };
}

}  // namespace

void set_apart_from_graphs(Api& api, const std::function<int(int* mode)>& exchange) {
  api.stand_apart = [exchange] {
    int mode = kCaptureModeRelaxed;
    return exchange(&mode);
  };
  const auto all = [&](auto&... calls) { (set_apart(exchange, calls), ...); };
  all(api.allocate, api.free, api.allocate_pinned, api.free_pinned, api.pin, api.unpin,
      api.create_stream, api.destroy_stream, api.create_event, api.destroy_event, api.load_module,
      api.unload_module);
}

int current_device(const Api& api) {
  void* context = nullptr;
  int device = -1;
  const bool has = api.get_context(&context) == 0 && context != nullptr;
  return has && api.current_device(&device) == 0 ? device : -1;
}

}  // namespace hetccl::device::gpu
