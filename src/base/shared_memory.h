// Memory shared by processes of one host: a memfd, fully allocated (a full machine is an error, not
// a SIGBUS), which peers open through /proc/<pid>/fd/<fd>. It has no name, so a killed process
// leaves nothing behind, and /dev/shm may be full or 64 MB small.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace hetccl {

/// Names a segment to other processes. Trivially copyable. The token is random and stands in the
/// segment's first 16 bytes too, so a recycled pid or descriptor is noticed.
struct SharedMemoryAddress {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t bytes = 0;
  uint8_t token[16] = {};
};

/// A mapped segment. Move-only. `data()` is page-aligned, zeroed at creation, and `bytes()` long.
class SharedMemory {
 public:
  static Result<SharedMemory> create(size_t bytes);
  /// SystemError says what /proc refused; InvalidArgument when size or token differ.
  static Result<SharedMemory> attach(const SharedMemoryAddress& address);
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Valid on the creating side, until `close_descriptor`.
  [[nodiscard]] SharedMemoryAddress address() const { return address_; }
  /// After every peer has attached: the mapping stays, nobody else can attach.
  void close_descriptor();

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  SharedMemoryAddress address_;
};

}  // namespace hetccl
