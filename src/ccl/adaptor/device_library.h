// Libraries for a device's clusters found at run time: adaptors (hetccl/adaptor.h).
#pragma once

#include <functional>
#include <memory>

#include "adaptor/adaptor.h"
#include "ccl/ccl.h"

namespace hetccl::ccl {

/// Makes the library of an adaptor that has one for a device. Streams are the device's native ones.
/// `make_current` makes the rank's device the calling thread's; an init that outlives its limit may
/// still call it.
std::unique_ptr<Library> make_adaptor_device_library(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor, std::function<void()> make_current);

}  // namespace hetccl::ccl
