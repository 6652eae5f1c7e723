// Waits and writes of values on streams.
#include <cstdint>

#include "core/hostile.h"
#include "cuda/numbers.h"
#include "hip/call.h"
#include "hip/noncoherent.h"
#include "hip/signal_memory.h"

using namespace forward;

namespace {

static_assert(hipStreamWaitValueGte == cuda::kWaitGeq);
static_assert(hipStreamWaitValueEq == cuda::kWaitEq);
static_assert(hipStreamWaitValueAnd == cuda::kWaitAnd);
static_assert(hipStreamWaitValueNor == cuda::kWaitNor);

// NVIDIA's driver has no mask. A full mask changes nothing, and "and" absorbs any mask. The driver
// cannot compare the remaining combinations, so they fail instead of waiting for another condition.
template <typename Value>
hipError_t apply_mask(const char* function, Value* value, unsigned flags, Value mask) {
  if (mask == static_cast<Value>(~Value{0})) return hipSuccess;
  if (flags == hipStreamWaitValueAnd) {
    *value &= mask;
    return hipSuccess;
  }
  explain_once(function,
               "NVIDIA's driver has no mask; a partial mask works with "
               "hipStreamWaitValueAnd only");
  return hipErrorNotSupported;
}

hipError_t check_wait(const char* function, const void* ptr, unsigned flags) {
  if (hostile(Hostile::kNoWaitValue)) return hipErrorNotSupported;
  if (flags > hipStreamWaitValueNor) return reject(function, "flags", flags);
  if (ptr == nullptr) return hipErrorInvalidValue;
  const bool refused = hostile(Hostile::kWaitValueSignalOnly) && !is_signal(ptr);
  return refused ? hipErrorInvalidValue : hipSuccess;
}

// AMD's header lets a write go to any memory that the GPU can access, signal or not.
hipError_t check_write(const char* function, const void* ptr, unsigned flags) {
  if (hostile(Hostile::kNoWaitValue)) return hipErrorNotSupported;
  if (flags != 0) return reject(function, "flags", flags);
  return ptr == nullptr ? hipErrorInvalidValue : hipSuccess;
}

}  // namespace

hipError_t hipStreamWaitValue32(hipStream_t stream, void* ptr, uint32_t value, unsigned int flags,
                                uint32_t mask) {
  constexpr const char* kName = "hipStreamWaitValue32";
  return enqueue(kName, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    hipError_t error = check_wait(kName, ptr, flags);
    if (error == hipSuccess) error = apply_mask(kName, &value, flags, mask);
    if (error != hipSuccess) return error;
    return from_cuda(driver.stream_wait_value32(queue, host_copy(ptr), value, flags));
  });
}

hipError_t hipStreamWaitValue64(hipStream_t stream, void* ptr, uint64_t value, unsigned int flags,
                                uint64_t mask) {
  constexpr const char* kName = "hipStreamWaitValue64";
  return enqueue(kName, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    hipError_t error = check_wait(kName, ptr, flags);
    if (error == hipSuccess) error = apply_mask(kName, &value, flags, mask);
    if (error != hipSuccess) return error;
    return from_cuda(driver.stream_wait_value64(queue, host_copy(ptr), value, flags));
  });
}

hipError_t hipStreamWriteValue32(hipStream_t stream, void* ptr, uint32_t value,
                                 unsigned int flags) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    const hipError_t error = check_write("hipStreamWriteValue32", ptr, flags);
    if (error != hipSuccess) return error;
    return from_cuda(driver.stream_write_value32(queue, host_copy(ptr), value, 0));
  });
}

hipError_t hipStreamWriteValue64(hipStream_t stream, void* ptr, uint64_t value,
                                 unsigned int flags) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    const hipError_t error = check_write("hipStreamWriteValue64", ptr, flags);
    if (error != hipSuccess) return error;
    return from_cuda(driver.stream_write_value64(queue, host_copy(ptr), value, 0));
  });
}
