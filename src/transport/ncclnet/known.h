// Memory that a transport's channels move without registering it for each chunk. A plug-in
// registers memory with one connection, so each link registers it for itself, before the first
// chunk that lies in it.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "transport/transport.h"

namespace hetccl::transport::ncclnet {

struct Known {
  uint64_t number = 0;  ///< links remember it by this; no other memory of the transport has it
  Memory memory;        ///< its dma-buf is `dmabuf`
  Fd dmabuf;
  [[nodiscard]] bool on_device() const { return memory.kind == MemoryKind::Device; }
  [[nodiscard]] std::byte* begin() const { return memory.data; }
  [[nodiscard]] std::byte* end() const { return memory.data + memory.bytes; }
};

}  // namespace hetccl::transport::ncclnet
