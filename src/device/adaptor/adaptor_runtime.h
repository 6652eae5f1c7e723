// Devices found at run time: makes an adaptor (hetccl/adaptor.h) look like the runtime of a GPU
// vendor.
#pragma once

#include <memory>

#include "adaptor/adaptor.h"
#include "device/gpu/api.h"

namespace hetccl::device {

/// Returns the runtime of an adaptor that has a device, or Unsupported with the reason.
Result<std::shared_ptr<const gpu::Api>> load_adaptor_runtime(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor);

}  // namespace hetccl::device
