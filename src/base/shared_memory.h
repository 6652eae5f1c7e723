// Memory shared by processes of one host: a memfd, fully allocated (full memory is an error, not a
// SIGBUS), which peers open through /proc/<pid>/fd/<fd>. It has no name, so a killed process leaves
// nothing behind, and the size of /dev/shm does not matter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace hetccl {

/// Names a segment to other processes. Trivially copyable. The random token is also in the
/// segment's first 16 bytes, which reveals a recycled pid or descriptor.
struct SharedMemoryAddress {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t bytes = 0;
  uint8_t token[16] = {};
};

/// A mapped segment. Move-only. `data()` is page-aligned, initially zero, and `bytes()` long.
class SharedMemory {
 public:
  static Result<SharedMemory> create(size_t bytes);
  /// Returns SystemError saying what /proc refused, InvalidArgument if size or token differ.
  static Result<SharedMemory> attach(const SharedMemoryAddress& address);
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Valid on the creating side, until `close_descriptor`.
  [[nodiscard]] SharedMemoryAddress address() const { return address_; }
  /// Call after every peer has attached: the mapping stays, but nobody else can attach.
  void close_descriptor();

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  SharedMemoryAddress address_;
};

}  // namespace hetccl
