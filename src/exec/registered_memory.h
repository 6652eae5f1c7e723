// Registers one device's memory with transports, so that NICs can reach it: work buffers and user
// memory. A registration lasts as long as its allocation, which the device identifies by a number.
// Memory that is freed, reused or mapped anew is registered anew.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "device/device.h"
#include "transport/transport.h"

namespace hetccl::exec {

/// Thread-safe. Must outlive the executors that use it; device and transports must outlive it.
class RegisteredMemory {
 public:
  /// Keeps memory registered while a call may access it.
  using Hold = std::shared_ptr<const void>;

  /// `transports`: those that register memory.
  RegisteredMemory(device::Device& device, std::vector<transport::Transport*> transports);

  /// Tests every NIC, before the first communicator asks `reaches`: the NIC writes to the device's
  /// memory and reads it back, and the bytes are compared with what streams see. Later calls do
  /// nothing, unless `limit` was cancelled. Takes at most five seconds per NIC.
  void try_cards(WaitLimit limit);
  /// Returns whether `transport` can access the device's memory, once registered.
  [[nodiscard]] bool reaches(const transport::Transport& transport) const;
  /// Returns why it cannot; empty: it can.
  [[nodiscard]] std::string why_not(const transport::Transport& transport) const;

  /// Registers [data, data + bytes) with the transports and adds to `holds` what keeps it
  /// registered. Returns false if a transport has not registered all of it, or if the range needs
  /// several registrations and a transport cannot join them; `holds` may have grown.
  bool hold(const void* data, size_t bytes, std::vector<Hold>& holds);
  /// Returns why the allocation at `data` is not registered, after `hold`.
  [[nodiscard]] Status why_unknown(const void* data);

  /// Registers memory that the user promises not to free before releasing the result. Returns
  /// SystemError if a transport refuses.
  Result<Hold> keep(void* data, size_t bytes);

 private:
  struct Transport {
    transport::Transport* transport = nullptr;
    std::string why_not = "HETCCL_RDMA_GPU=0";  ///< for device memory; until NICs are tested
  };
  struct Entry {
    device::Allocation allocation;
    uint64_t used = 0;
    Status refused;  // by a transport that must register it
    std::vector<std::unique_ptr<transport::Registration>> registrations;
  };
  using Entries = std::map<const std::byte*, std::shared_ptr<Entry>>;

  std::shared_ptr<Entry> make_entry(const device::Allocation& allocation) const;
  Status register_with_all(Entry& entry) const;
  Status try_card(transport::Transport& transport, size_t card, const WaitLimit& limit);
  /// Returns null if no user has promised to keep the memory at `at`.
  [[nodiscard]] std::shared_ptr<Entry> find_kept(const std::byte* at) const;
  const std::shared_ptr<Entry>& entry_of(const device::Allocation& allocation);
  void make_room();
  void forget_overlapped(const device::Allocation& allocation);
  void forget_one_freed();

  device::Device& device_;
  std::vector<Transport> transports_;
  const bool joins_;  // Transport::joins_registrations of all of them
  std::mutex trying_;
  bool tried_ = false;
  mutable std::mutex mutex_;  // guards what follows
  Entries entries_;           // by start address
  Entries kept_;              // promised by users
  uint64_t uses_ = 0;
  const std::byte* looked_at_ = nullptr;
};

}  // namespace hetccl::exec
