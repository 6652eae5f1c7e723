// The GPU vendors whose runtimes hetccl knows, one row each.
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
  /// The process's own use of such GPUs.
  std::shared_ptr<InProcess> (*in_process)(const Config& config);
  Result<std::shared_ptr<const Api>> (*load_runtime)(const Config& config);
  Result<std::shared_ptr<const kernels::Compiler>> (*load_compiler)(const Config& config);
};

extern const Vendor kCuda, kHip;

/// Returns all rows. A runtime may be built on an earlier row's, as AMD's is with
/// HIP_PLATFORM=nvidia.
std::span<const Vendor* const> vendors();

}  // namespace hetccl::device::gpu
