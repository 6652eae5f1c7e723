// The RDMA devices of this host and their ports: which ports can be used, and why the others
// cannot. An open device registers memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "net/hardware.h"
#include "transport/transport.h"
#include "transport/verbs/library.h"

namespace hetccl::transport::verbs {

/// Returns whether a GID is a mapped IPv4 address.
bool is_ipv4(const abi::Gid& gid);
/// Returns whether the GID is valid only within its Ethernet: fe80::/10, 169.254.0.0/16.
bool is_link_local(const abi::Gid& gid);

class Device;

/// Memory that a NIC may access while this lives. Move-only.
class Region {
 public:
  Region() = default;
  Region(std::shared_ptr<const Device> device, abi::Mr* mr);
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();
  [[nodiscard]] bool valid() const { return mr_ != nullptr; }
  [[nodiscard]] uint32_t local_key() const { return mr_->lkey; }
  [[nodiscard]] uint32_t remote_key() const { return mr_->rkey; }
  void reset();

 private:
  std::shared_ptr<const Device> device_;
  abi::Mr* mr_ = nullptr;
};

/// An open device. Thread-safe.
class Device : public std::enable_shared_from_this<Device> {
 public:
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<const Api> api, abi::Device* device);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const Api& api() const { return *api_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] abi::Context* context() const { return context_; }
  [[nodiscard]] abi::Pd* pd() const { return pd_; }
  /// Returns the channel of its completion events. Reads do not block.
  [[nodiscard]] abi::CompletionChannel* events() const { return events_; }
  /// Returns SystemError if the kernel or the device refuses. `*again` then tells whether a retry
  /// may succeed once other regions have ended.
  Result<Region> register_memory(void* data, size_t bytes, unsigned access, bool* again) const;
  /// Registers device memory by its dma-buf; without one by its address, which some drivers accept.
  Result<Region> register_memory(const Memory& memory, unsigned access) const;

 private:
  Device(std::shared_ptr<const Api> api, std::string name, abi::Context* context);
  Status prepare();

  const std::shared_ptr<const Api> api_;
  const std::string name_;
  abi::Context* const context_;
  abi::Pd* pd_ = nullptr;
  abi::CompletionChannel* events_ = nullptr;
};

/// A port of a device, as its owner sees it.
struct Port {
  std::string name;       ///< "mlx5_0:1"
  std::string unusable;   ///< why it cannot be used; empty: it can
  bool excluded = false;  ///< by a setting
  std::shared_ptr<Device> device;
  uint8_t number = 0;
  uint8_t link = abi::kLinkUnspecified;
  uint16_t lid = 0;
  int mtu = 0;              ///< in the ABI's code
  uint32_t mbps = 0;        ///< 0: unknown
  uint8_t prefix_bits = 0;  ///< of the subnet of the GID, on Ethernet; 0: unknown
  uint8_t gid_index = 0;
  const char* gid_reason = "";  ///< why this GID was chosen
  uint16_t pkey_index = 0;
  abi::GidEntry gid{};
  net::BusLocation place;  ///< where the device sits on the buses

  /// Returns "mlx5_0:1: RoCE v2, GID 3 (10.0.0.1/24, the first of v2 and IPv4), MTU 4096, 100
  /// Gbit/s", or why the port is not used.
  [[nodiscard]] std::string describe() const;
};

/// Returns all ports of the devices that HETCCL_RDMA_DEVICES admits, sorted by name; numbers in
/// names sort by value. Returns Unsupported if the host has no device, InvalidArgument if none is
/// admitted.
Result<std::vector<Port>> find_ports(const std::shared_ptr<const Api>& api, const Config& config);

}  // namespace hetccl::transport::verbs
