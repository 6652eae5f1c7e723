// The host device, whose copies begin late, as does work behind flags: for what must not run ahead
// of them, where real work nearly always wins. It counts its copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "device/device.h"

namespace hetccl::fake {

/// The delays come from `seed`. `copies`, if any, outlives the device.
std::unique_ptr<device::Device> make_slow_host(uint64_t seed, std::atomic<uint64_t>* copies);

}  // namespace hetccl::fake
