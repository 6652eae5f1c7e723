// The host as a device: memory is the host's, streams are cooperative task queues that advance
// when the progress engine polls the device.
#pragma once

#include <memory>

#include "device/device.h"

namespace hetccl {
class Crew;
}  // namespace hetccl

namespace hetccl::device {

/// A `host` device. `Stream::native()` is a `TaskQueue*`; `wrap_stream` takes one that
/// `create_stream` of the same device made. A stream that is destroyed with work in it finishes
/// that work first, as in CUDA; a device that is destroyed drops what is left.
/// `crew` (may be null) helps with large copies and reductions.
std::unique_ptr<Device> make_host_device(std::shared_ptr<Crew> crew = nullptr);

}  // namespace hetccl::device
