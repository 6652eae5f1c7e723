// Streams.
#include "cuda/numbers.h"
#include "hip/call.h"

using namespace forward;

namespace {

static_assert(hipStreamDefault == cuda::kStreamDefault);
static_assert(hipStreamNonBlocking == cuda::kStreamNonBlocking);
static_assert(hipEventWaitDefault == 0 && hipEventWaitExternal == cuda::kWaitEventExternal);

hipError_t create(const char* function, hipStream_t* stream, unsigned flags, int priority) {
  return in_context(function, [&](const cuda::Driver& driver) {
    if (flags != hipStreamDefault && flags != hipStreamNonBlocking) {
      return reject(function, "flags", flags);
    }
    if (stream == nullptr) return hipErrorInvalidValue;
    return create_queue(driver, stream, flags, priority);
  });
}

}  // namespace

hipError_t hipStreamCreate(hipStream_t* stream) {
  return create(__func__, stream, hipStreamDefault, 0);
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) {
  return create(__func__, stream, flags, 0);
}

hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int priority) {
  return create(__func__, stream, flags, priority);
}

// NVIDIA's driver has no mask of compute units, so the stream runs on all of them.
hipError_t hipExtStreamCreateWithCUMask(hipStream_t* stream, uint32_t cuMaskSize,
                                        const uint32_t* cuMask) {
  if (cuMaskSize == 0 || cuMask == nullptr) return remember(hipErrorInvalidValue);
  return create(__func__, stream, hipStreamDefault, 0);
}

hipError_t hipDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    return from_cuda(driver.ctx_priority_range(leastPriority, greatestPriority));
  });
}

hipError_t hipStreamDestroy(hipStream_t stream) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    const bool reserved =
        stream == nullptr || stream == hipStreamLegacy || stream == hipStreamPerThread;
    return reserved ? hipErrorInvalidHandle : destroy_queue(driver, stream);
  });
}

hipError_t hipStreamSynchronize(hipStream_t stream) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    return from_cuda(driver.stream_synchronize(queue_of(stream)));
  });
}

hipError_t hipStreamQuery(hipStream_t stream) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    return from_cuda(driver.stream_query(queue_of(stream)));
  });
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    if (flags != hipEventWaitDefault && flags != hipEventWaitExternal) {
      return reject("hipStreamWaitEvent", "flags", flags);
    }
    if (event == nullptr) return hipErrorInvalidHandle;
    return from_cuda(driver.stream_wait_event(queue, event, flags));
  });
}
