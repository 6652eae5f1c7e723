#include "hip/host_function.h"

#include "hip/call.h"

namespace forward {
namespace {

struct Wrapper {
  hipHostFn_t function;
  void* data;
  bool repeats;
};

thread_local int depth = 0;

void run(void* pointer) {
  auto* wrapper = static_cast<Wrapper*>(pointer);
  ++depth;
  wrapper->function(wrapper->data);
  --depth;
  if (!wrapper->repeats) delete wrapper;
}

}  // namespace

bool inside_host_function() {
  return depth > 0;
}

WrappedFunction wrap_host_function(hipHostFn_t hip_function, void* user_data, bool repeats) {
  return {run, new Wrapper{hip_function, user_data, repeats}};
}

void discard(const WrappedFunction& wrapped) {
  delete static_cast<Wrapper*>(wrapped.data);
}

}  // namespace forward

using namespace forward;

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t fn, void* userData) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    if (fn == nullptr) return hipErrorInvalidValue;
    // A captured launch runs once per graph launch, so its wrapper must outlive the first run.
    int status = 0;
    (void)driver.stream_is_capturing(queue, &status);
    const WrappedFunction wrapped = wrap_host_function(fn, userData, status != 0);
    const int code = driver.launch_host_function(queue, wrapped.function, wrapped.data);
    if (code != 0) discard(wrapped);
    return from_cuda(code);
  });
}
