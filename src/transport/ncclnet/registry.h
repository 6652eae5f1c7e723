// Memory that a transport's channels move without registering it for each chunk. A plug-in
// registers memory with one connection, so each link registers it for itself, before the first
// chunk that lies in it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "transport/transport.h"

namespace hetccl::transport::ncclnet {

class Core;

struct Known {
  uint64_t number = 0;  ///< links remember it by this; no other memory of the transport has it
  Memory memory;        ///< its dma-buf is `dmabuf`
  Fd dmabuf;
  [[nodiscard]] bool on_device() const { return memory.kind == MemoryKind::Device; }
  [[nodiscard]] bool contains(const std::byte* data, size_t bytes) const {
    return data >= memory.data && bytes <= memory.bytes &&
           data - memory.data <= static_cast<std::ptrdiff_t>(memory.bytes - bytes);
  }
};

/// Its end deregisters the memory on all connections before it returns, so that the memory may be
/// unmapped.
class Registered final : public Registration {
 public:
  Registered(std::shared_ptr<Core> core, Known known)
      : core_(std::move(core)), known_(std::move(known)) {}
  ~Registered() override;
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  [[nodiscard]] const Known& known() const { return known_; }

 private:
  const std::shared_ptr<Core> core_;
  const Known known_;
};

/// Thread-safe.
class Registry {
 public:
  /// The caller removes `known` before it ends.
  void add(const Known& known);
  void remove(const Known& known);
  /// Returns the youngest that contains all of `bytes` at `data`, or null. An older one may be
  /// memory that its user has freed and not deregistered yet.
  [[nodiscard]] const Known* find(const void* data, size_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::vector<const Known*> known_;  // the oldest first
};

}  // namespace hetccl::transport::ncclnet
