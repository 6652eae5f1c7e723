// Libraries of a device's clusters that are found at run time: adaptors (hetccl/adaptor.h).
#pragma once

#include <functional>
#include <memory>

#include "adaptor/adaptor.h"
#include "ccl/ccl.h"

namespace hetccl::ccl {

/// Of an adaptor whose library has a device. Streams are the device's native ones. `make_current`
/// makes the rank's device that of the calling thread; an init that outlives its limit still has
/// it.
std::unique_ptr<Library> make_adaptor_device_library(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor, std::function<void()> make_current);

}  // namespace hetccl::ccl
