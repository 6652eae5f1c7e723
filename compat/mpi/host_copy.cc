#include "mpi/host_copy.h"

namespace hetccl::mpi {

bool needs_host_copy(Word buffer, const Library& library) {
  if ((loaded_runtimes() & ~library.takes_device_memory) == 0) return false;
  const MemorySpace memory = memory_of(to_pointer<const void>(buffer));
  return memory.kind == MemorySpace::Kind::Device &&
         (set_of(*memory.gpu.vendor) & library.takes_device_memory) == 0;
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
