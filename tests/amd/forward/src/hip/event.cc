// Events.
#include "cuda/numbers.h"
#include "hip/call.h"

using namespace forward;

namespace {

static_assert(hipEventBlockingSync == cuda::kEventBlockingSync);
static_assert(hipEventDisableTiming == cuda::kEventDisableTiming);
static_assert(hipEventInterprocess == cuda::kEventInterprocess);
static_assert(hipEventDisableSystemFence == 0x20000000);
static_assert(hipEventReleaseToDevice == 0x40000000);
static_assert(hipEventReleaseToSystem == 0x80000000);

constexpr unsigned kSharedFlags =
    hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess;
constexpr unsigned kReleaseFlags = hipEventReleaseToDevice | hipEventReleaseToSystem;

hipError_t check(const char* function, unsigned flags) {
  if ((flags & ~(kSharedFlags | kReleaseFlags | hipEventDisableSystemFence)) != 0) {
    return reject(function, "flags", flags);
  }
  if ((flags & kReleaseFlags) == kReleaseFlags) {
    return reject(function, "flags (both release scopes)", flags);
  }
  const bool timed = (flags & hipEventDisableTiming) == 0;
  return (flags & hipEventInterprocess) != 0 && timed
             ? reject(function, "flags (interprocess without hipEventDisableTiming)", flags)
             : hipSuccess;
}

hipError_t create(const char* function, hipEvent_t* event, unsigned flags) {
  return in_context(function, [&](const cuda::Driver& driver) {
    const hipError_t error = check(function, flags);
    if (error != hipSuccess) return error;
    if (event == nullptr) return hipErrorInvalidValue;
    cuda::Handle created = nullptr;
    const int code = driver.event_create(&created, flags & kSharedFlags);
    *event = static_cast<hipEvent_t>(created);
    return from_cuda(code);
  });
}

}  // namespace

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  return create(__func__, event, flags);
}

hipError_t hipEventCreate(hipEvent_t* event) {
  return create(__func__, event, hipEventDefault);
}

hipError_t hipEventDestroy(hipEvent_t event) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (event == nullptr) return hipErrorInvalidHandle;
    return from_cuda(driver.event_destroy(event));
  });
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    if (event == nullptr) return hipErrorInvalidHandle;
    return from_cuda(driver.event_record(event, queue));
  });
}

hipError_t hipEventQuery(hipEvent_t event) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (event == nullptr) return hipErrorInvalidHandle;
    return from_cuda(driver.event_query(event));
  });
}

hipError_t hipEventSynchronize(hipEvent_t event) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (event == nullptr) return hipErrorInvalidHandle;
    return from_cuda(driver.event_synchronize(event));
  });
}

hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (ms == nullptr) return hipErrorInvalidValue;
    if (start == nullptr || stop == nullptr) return hipErrorInvalidHandle;
    return from_cuda(driver.event_elapsed_time(ms, start, stop));
  });
}
