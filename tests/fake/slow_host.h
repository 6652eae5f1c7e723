// The host device, whose copies begin late: for what must not run ahead of them, where a real copy
// nearly always wins.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"

namespace hetccl::fake {

/// Delays, counted in polls of a stream, come from `seed`.
std::unique_ptr<device::Device> make_slow_host(uint64_t seed);

}  // namespace hetccl::fake
