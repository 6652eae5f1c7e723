// The library of a device that has none: every rank is a cluster of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "ccl/ccl.h"

namespace hetccl::ccl {

/// Enqueues a copy on a native stream of the device.
using Copy = std::function<Status(void* stream, void* to, const void* from, size_t bytes)>;

/// Makes a library named "none"; ranks with that name never share a cluster. It returns Unsupported
/// for pre-multiplied sums: the device or the host, which have the factor, compute them.
std::unique_ptr<Library> make_solo_library(Copy copy);

}  // namespace hetccl::ccl
