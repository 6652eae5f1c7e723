// Devices that are found at run time: adaptors (hetccl/adaptor.h), as the runtime of a GPU's
// vendor.
#pragma once

#include <memory>

#include "adaptor/adaptor.h"
#include "device/gpu/api.h"

namespace hetccl::device {

/// The runtime of an adaptor that has a device. Unsupported with the reason where there is none.
Result<std::shared_ptr<const gpu::Api>> load_adaptor_runtime(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor);

}  // namespace hetccl::device
