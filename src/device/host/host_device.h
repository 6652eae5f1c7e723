// The host as a device: memory is the host's, streams are cooperative task queues that advance
// when the progress engine polls the device.
#pragma once

#include <memory>

#include "device/device.h"

namespace hetccl::device {

/// A `host` device. `Stream::native()` is a `TaskQueue*`; `wrap_stream` takes one that
/// `create_stream` of the same device made. A stream that is destroyed with work in it finishes
/// that work first, as in CUDA; a device that is destroyed drops what is left.
std::unique_ptr<Device> make_host_device();

}  // namespace hetccl::device
