// The frame of every HIP call: host-function guard, implicit device, error memory, enqueue pause.
#pragma once

#include <utility>

#include "core/reject.h"
#include "cuda/driver.h"
#include "hip/context.h"
#include "hip/errors.h"
#include "hip/hip.h"
#include "hip/queue.h"

namespace forward {

/// In mode blocking-host-functions, ends the process if the caller runs inside a host function.
void forbid_inside_host_function(const char* function);

/// In mode slow-enqueue, sleeps FORWARD_SLOW_MS milliseconds (default 2) under one global lock.
void pause_enqueue();

/// Stores `error` as this thread's last error, unless it is success or hipErrorNotReady.
hipError_t remember(hipError_t error);

/// Counts and prints a value that AMD's header does not define. Returns hipErrorInvalidValue.
[[nodiscard]] inline hipError_t reject(const char* function, const char* argument,
                                       unsigned long long value) {
  count_rejection(function, argument, value);
  return hipErrorInvalidValue;
}

/// Runs `body(driver)` without a current context. Returns and remembers its error.
template <typename Body>
hipError_t plain(const char* function, Body&& body) {
  forbid_inside_host_function(function);
  const cuda::Driver* driver = initialized_driver();
  return remember(driver == nullptr ? hipErrorNoDevice : body(*driver));
}

/// Runs `body(driver)` after it made the primary context of the thread's device current.
template <typename Body>
hipError_t in_context(const char* function, Body&& body) {
  return plain(function, [&](const cuda::Driver& driver) {
    const hipError_t error = make_current(driver);
    return error == hipSuccess ? body(driver) : error;
  });
}

/// Runs `body(driver, queue)` with the CUDA stream behind `stream`; for calls that add work.
template <typename Body>
hipError_t enqueue(const char* function, hipStream_t stream, Body&& body) {
  return in_context(function, [&](const cuda::Driver& driver) {
    pause_enqueue();
    return body(driver, queue_of(stream));
  });
}

}  // namespace forward
