#include "hip/call.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "core/hostile.h"
#include "hip/exports.h"
#include "hip/host_function.h"
#include "hip/noncoherent.h"

namespace forward {
namespace {

struct LastError {
  hipError_t sticky = hipSuccess;    // For hipGetLastError and hipPeekAtLastError.
  hipError_t previous = hipSuccess;  // For hipExtGetLastError.
};

thread_local LastError last_error;

int pause_milliseconds() {
  const char* value = std::getenv("FORWARD_SLOW_MS");
  return value == nullptr ? 2 : std::atoi(value);
}

}  // namespace

void forbid_inside_host_function(const char* function) {
  if (!hostile(Hostile::kBlockingHostFunctions) || !inside_host_function()) return;
  std::fprintf(stderr,
               "forward: a host function called %s; AMD's header forbids HIP calls inside "
               "hipLaunchHostFunc\n",
               function);
  std::abort();
}

void pause_enqueue() {
  if (!hostile(Hostile::kSlowEnqueue)) return;
  static std::mutex mutex;
  static const int milliseconds = pause_milliseconds();
  const std::lock_guard<std::mutex> lock(mutex);
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

hipError_t remember(hipError_t error) {
  last_error.previous = error;
  if (error != hipSuccess && error != hipErrorNotReady) last_error.sticky = error;
  return error;
}

}  // namespace forward

using forward::last_error;

hipError_t hipGetLastError() {
  return std::exchange(last_error.sticky, hipSuccess);
}

hipError_t hipPeekAtLastError() {
  return last_error.sticky;
}

hipError_t hipExtGetLastError() {
  return std::exchange(last_error.previous, hipSuccess);
}

void* forward_cuda_stream(hipStream_t stream) {
  return forward::queue_of(stream);
}

void* forward_host_copy(const void* pointer) {
  return reinterpret_cast<void*>(forward::host_copy(pointer));
}

int forward_before_enqueue(const char* function) {
  return forward::in_context(function, [](const forward::cuda::Driver&) {
    forward::pause_enqueue();
    return hipSuccess;
  });
}

int forward_make_current(const char* function) {
  return forward::in_context(function, [](const forward::cuda::Driver&) { return hipSuccess; });
}

unsigned long forward_rejections() {
  return forward::rejections();
}
