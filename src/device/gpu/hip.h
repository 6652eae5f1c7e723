// Constants of AMD's hip_runtime_api.h, and the layout of two of its structs.
#pragma once

#include <cstddef>

namespace hetccl::device::gpu::hip {

inline constexpr int kInvalidValue = 1, kInvalidDevice = 101, kNotSupported = 801;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
inline constexpr unsigned kHostPortable = 1, kHostMapped = 2, kHostCoherent = 0x40000000;
inline constexpr unsigned kRegisterPortable = 1, kRegisterMapped = 2;
inline constexpr int kMultiprocessors = 63;      ///< a device attribute
inline constexpr int kCopyDefault = 4;           ///< a kind of copy
inline constexpr int kDevice = 2, kManaged = 3;  ///< kinds of memory

/// The layout of hipPointerAttribute_t.
struct PointerAttributes {
  int type = 0;
  int device = -1;
  void *device_address = nullptr, *host_address = nullptr;
  int managed = 0;
  unsigned flags = 0;
};

/// The size of hipDeviceProp_tR0600 is 1472 bytes; this leaves room for newer ones. The offset is
/// of its gcnArchName.
inline constexpr size_t kPropertiesRoom = 4096;
inline constexpr size_t kArchitectureOffset = 1160, kArchitectureBytes = 256;

}  // namespace hetccl::device::gpu::hip
