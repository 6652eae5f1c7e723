// The two memories behind one address of non-coherent memory (hip/noncoherent.h).
#pragma once

#include <cstddef>

#include "cuda/driver.h"
#include "hip/hip.h"
#include "hip/merge.h"

namespace forward {

class Shadow {
 public:
  explicit Shadow(const cuda::Driver& driver) : driver_(driver) {}
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// Undoes what create() did, also after it failed. The GPU must not use the memory any more.
  ~Shadow();

  /// Maps and zeroes both memories. Returns hipErrorNotSupported if the driver's reservation of
  /// the address is not one that the host may replace.
  [[nodiscard]] hipError_t create(std::size_t bytes);

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] void* address() const { return reinterpret_cast<void*>(reserved_); }
  [[nodiscard]] cuda::Address alias() const { return cuda::address(alias_); }
  [[nodiscard]] Copies copies() const;

 private:
  enum class HostRange { kUnmapped, kReserved, kInUse };

  [[nodiscard]] hipError_t map_alias(int file);
  [[nodiscard]] hipError_t back_with_device_memory();
  [[nodiscard]] hipError_t grant_access(int device) const;
  [[nodiscard]] hipError_t replace_reservation(int file);
  [[nodiscard]] hipError_t zero() const;
  [[nodiscard]] HostRange inspect_host_range() const;
  [[nodiscard]] std::size_t locks_offset() const { return 2 * host_bytes_; }

  const cuda::Driver& driver_;
  std::size_t bytes_ = 0;         // As the program asked.
  std::size_t host_bytes_ = 0;    // Whole pages, on the host.
  std::size_t device_bytes_ = 0;  // Device's copy, base and locks, in whole granules.
  void* alias_ = nullptr;
  bool registered_ = false;
  cuda::Address reserved_ = 0;
  cuda::MemoryHandle memory_ = 0;
  bool has_memory_ = false;
  bool mapped_ = false;
  bool replaced_ = false;
  HostRange before_ = HostRange::kUnmapped;
};

}  // namespace forward
