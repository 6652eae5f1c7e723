// The host as a device. Memory is the host's; streams are cooperative task queues that advance when
// the progress engine polls the device.
#pragma once

#include <memory>

#include "device/device.h"

namespace hetccl {
class Crew;
}  // namespace hetccl

namespace hetccl::device {

/// Makes a `host` device. `Stream::native()` is a `TaskQueue*`; `wrap_stream` takes one that this
/// device's `create_stream` made. Destroying a stream finishes its work first, as in CUDA;
/// destroying the device drops the rest. `crew` (may be null) helps with large copies and
/// reductions.
std::unique_ptr<Device> make_host_device(std::shared_ptr<Crew> crew = nullptr);

}  // namespace hetccl::device
