// A host device on which copies, and work after flags, begin late. Tests use it for calls that must
// not overtake such work, which would nearly always be in time on the real host. Counts its copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "device/device.h"

namespace hetccl::fake {

/// The delays come from `seed`. `copies`, if any, outlives the device.
std::unique_ptr<device::Device> make_slow_host(uint64_t seed, std::atomic<uint64_t>* copies);

}  // namespace hetccl::fake
