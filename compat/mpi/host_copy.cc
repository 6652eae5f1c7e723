#include "mpi/host_copy.h"

namespace hetccl::mpi {

bool needs_host_copy(Word buffer, const Library& library) {
  return !library.takes_device_memory &&
         memory_of(to_pointer<const void>(buffer)).kind == MemorySpace::Kind::Device;
}

Result<HostCopy> HostCopy::make(Word buffer, Span span, bool in) {
  const MemorySpace memory = memory_of(to_pointer<const void>(buffer));
  HETCCL_ASSIGN(Scratch scratch, Scratch::take({}, span.bytes()));
  HostCopy copy(std::move(scratch), buffer, memory, span);
  if (in) {
    HETCCL_TRY(copy.copy_in());
  }
  return copy;
}

Status HostCopy::copy_in() const {
  return copy_memory(scratch_.data(), {}, original(), memory_, span_.bytes());
}

Status HostCopy::copy_back() const {
  return copy_memory(original(), memory_, scratch_.data(), {}, span_.bytes());
}

}  // namespace hetccl::mpi
