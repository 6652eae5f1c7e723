// The vendors of GPUs whose runtimes hetccl knows: one row each.
#pragma once

#include <memory>
#include <span>

#include "base/config.h"
#include "base/status.h"
#include "device/gpu/api.h"
#include "device/gpu/in_process.h"
#include "device/kernels/compiler.h"

namespace hetccl::device::gpu {

struct Vendor {
  const char* name;  ///< its devices are "<name>:<index>"
  /// What the process itself does with such GPUs.
  std::shared_ptr<InProcess> (*in_process)(const Config& config);
  Result<std::shared_ptr<const Api>> (*load_runtime)(const Config& config);
  Result<std::shared_ptr<const kernels::Compiler>> (*load_compiler)(const Config& config);
};

extern const Vendor kCuda, kHip;

/// All rows. A runtime may stand on that of an earlier row, as AMD's does with HIP_PLATFORM=nvidia.
std::span<const Vendor* const> vendors();

}  // namespace hetccl::device::gpu
