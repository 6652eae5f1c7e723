// HIP's implicit device over the driver API: one device per thread, one primary context per device.
#pragma once

#include "cuda/driver.h"
#include "hip/hip.h"

namespace forward {

/// Returns the driver after cuInit(0), or null if there is no driver or no device. Thread-safe.
[[nodiscard]] const cuda::Driver* initialized_driver();

/// Returns this thread's device. A new thread starts on device 0.
[[nodiscard]] int current_device();

/// Returns the number of devices, 0 if the driver reports an error. Thread-safe.
[[nodiscard]] int device_count(const cuda::Driver& driver);

/// Sets this thread's device; hipErrorInvalidDevice if there is no such device.
[[nodiscard]] hipError_t set_device(const cuda::Driver& driver, int device);

/// Returns the primary context of `device`, which the process retains once. Thread-safe.
[[nodiscard]] hipError_t primary_context(const cuda::Driver& driver, int device,
                                         cuda::Handle* context);

/// Resets the primary context of this thread's device. The next call retains it anew.
[[nodiscard]] hipError_t reset_device(const cuda::Driver& driver);

/// Makes the primary context of this thread's device current on this thread. NCCL may have changed
/// the current context since the last call, so the function asks the driver each time.
[[nodiscard]] hipError_t make_current(const cuda::Driver& driver);

}  // namespace forward
