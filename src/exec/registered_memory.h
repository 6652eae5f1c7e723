// Memory of one device that transports know, so that their cards reach it: what calls work in, and
// what users hand to them. It is kept registered as long as the allocation is the same one, which
// the device tells by a number: what is freed, used again or mapped anew is registered anew.
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

/// Thread-safe. Outlives the executors that use it, and is outlived by device and transports.
class RegisteredMemory {
 public:
  /// Keeps memory registered while a call may move it.
  using Hold = std::shared_ptr<const void>;

  /// `transports`: those that register.
  RegisteredMemory(device::Device& device, std::vector<transport::Transport*> transports);

  /// Has every card write to the device's memory and read it back, and compares what its streams
  /// see, before the first communicator asks `reaches`. Later calls do nothing, unless `limit` was
  /// cancelled. Takes five seconds at most for each card.
  void try_cards(WaitLimit limit);
  /// Whether `transport` moves the device's memory, where it is registered.
  [[nodiscard]] bool reaches(const transport::Transport& transport) const;
  /// Why it does not; empty: it does.
  [[nodiscard]] std::string why_not(const transport::Transport& transport) const;

  /// Makes sure that transports know [data, data + bytes), and adds to `holds` what keeps it so.
  /// False where they do not know all of it, or would need several registrations for it that one
  /// of them does not join: `holds` may have grown.
  bool hold(const void* data, size_t bytes, std::vector<Hold>& holds);
  /// Why transports do not know the allocation at `data`, after `hold`.
  [[nodiscard]] Status why_unknown(const void* data);

  /// Registers memory whose user promises to keep it until he lets go of the result. SystemError
  /// where a transport refuses.
  Result<Hold> keep(void* data, size_t bytes);

 private:
  struct Transport {
    transport::Transport* transport = nullptr;
    std::string why_not = "HETCCL_RDMA_GPU=0";  ///< until cards were tried; of the device's memory
  };
  struct Entry {
    device::Allocation allocation;
    uint64_t used = 0;
    Status refused;  // by some transport that is to know it
    std::vector<std::unique_ptr<transport::Registration>> registrations;
  };
  using Entries = std::map<const std::byte*, std::shared_ptr<Entry>>;

  std::shared_ptr<Entry> make_entry(const device::Allocation& allocation) const;
  Status register_with_all(Entry& entry) const;
  Status try_card(transport::Transport& transport, size_t card, const WaitLimit& limit);
  /// Null where no user has promised to keep what lies there.
  [[nodiscard]] std::shared_ptr<Entry> find_kept(const std::byte* at) const;
  const std::shared_ptr<Entry>& entry_of(const device::Allocation& allocation);
  void make_room();
  void forget_overlapped(const device::Allocation& allocation);
  void forget_one_freed();

  device::Device& device_;
  std::vector<Transport> transports_;
  const bool joins_;  // all of them: Transport::joins_registrations
  std::mutex trying_;
  bool tried_ = false;
  mutable std::mutex mutex_;  // guards what follows
  Entries entries_;           // by where they begin
  Entries kept_;              // of users' promises
  uint64_t uses_ = 0;
  const std::byte* looked_at_ = nullptr;
};

}  // namespace hetccl::exec
