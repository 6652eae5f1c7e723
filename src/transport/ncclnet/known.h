// Memory registered with the transport, whose chunks need no registration of their own. A plug-in
// registers memory with one connection, so each link registers it before the first chunk that lies
// in it.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "transport/transport.h"

namespace hetccl::transport::ncclnet {

struct Known {
  uint64_t number = 0;  ///< identifies it in the transport and in its links; never reused
  Memory memory;        ///< its dma-buf is `dmabuf`
  Fd dmabuf;
  [[nodiscard]] bool on_device() const { return memory.kind == MemoryKind::Device; }
  [[nodiscard]] std::byte* begin() const { return memory.data; }
  [[nodiscard]] std::byte* end() const { return memory.data + memory.bytes; }
};

}  // namespace hetccl::transport::ncclnet
