// The library of a device that has none: every rank is a cluster of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "ccl/ccl.h"

namespace hetccl::ccl {

/// Enqueues a copy on a native stream of the device.
using Copy = std::function<Status(void* stream, void* to, const void* from, size_t bytes)>;

/// Its name is "none", by which no two ranks share a cluster. Pre-multiplied sums are Unsupported:
/// they are the device's or the host's, which have the factor.
std::unique_ptr<Library> make_solo_library(Copy copy);

}  // namespace hetccl::ccl
