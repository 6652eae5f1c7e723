// What a vendor's library does with a device, in terms of the device seam.
#pragma once

#include <memory>

#include "ccl/nccl/nccl_library.h"
#include "device/gpu/gpu_device.h"

namespace hetccl::comm {

std::shared_ptr<ccl::Workspace> make_workspace(std::shared_ptr<device::GpuDevice> device);

}  // namespace hetccl::comm
