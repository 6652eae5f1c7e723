// The state that the channels of one transport share: the plug-in, its devices, and the descriptor
// that the engine sleeps on. A plug-in has no descriptor, so while requests are outstanding a timer
// wakes the engine.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/fd.h"
#include "transport/memory_map.h"
#include "transport/ncclnet/known.h"
#include "transport/ncclnet/loopback.h"
#include "transport/ncclnet/plugin.h"

namespace hetccl::transport::ncclnet {

class NetChannel;

class Core : public std::enable_shared_from_this<Core> {
 public:
  static Result<std::shared_ptr<Core>> create(std::shared_ptr<const Plugin> plugin,
                                              std::vector<Device> devices, const Config& config);

  /// Moves data without blocking. Returns true if anything moved. After it returned false, `fd`
  /// polls readable when it must be called again.
  bool progress();
  [[nodiscard]] int fd() const { return epoll_.get(); }
  [[nodiscard]] const std::shared_ptr<const Plugin>& plugin() const { return plugin_; }
  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }
  [[nodiscard]] const Config& config() const { return config_; }
  std::atomic<uint64_t> bytes_sent{0};
  /// Number of chunks, over all channels, whose memory is registered for them alone.
  std::atomic<size_t> registered{0};

  // Thread-safe: registered memory (core_memory.cc).
  /// Returns whether every device accepts GPU memory.
  [[nodiscard]] bool reaches_devices() const;
  /// See Transport::register_memory.
  Result<std::unique_ptr<Registration>> register_memory(const Memory& memory);
  /// See Transport::copy_by_card.
  Status copy(size_t card, void* to, const void* from, size_t bytes, const WaitLimit& limit);
  /// Returns the registered memory that contains the parcel, or null.
  [[nodiscard]] const Known* find(const Parcel& transfer) const;

  // For channels, with `mutex` held.
  std::mutex mutex;
  /// Adds a channel and watches its `wire`. Returns SystemError if the system lacks memory.
  Status add(NetChannel& channel, int wire);
  void remove(NetChannel& channel);
  /// Begins or stops to watch whether `wire` can be written to.
  void watch_writes(NetChannel& channel, int wire, bool writes);
  void unwatch(int wire);

 private:
  /// One device's loopback, which tests registrations and copies for trials.
  struct Probe {
    std::mutex mutex;
    std::unique_ptr<Loopback> loopback;
  };

  Core(std::shared_ptr<const Plugin> plugin, std::vector<Device> devices, const Config& config,
       Fd epoll, Fd timer);
  class Registered;
  bool handle_events();
  void rest();
  [[nodiscard]] const Known* find(const void* data, size_t bytes) const;
  void forget(const std::shared_ptr<const Known>& known);
  Status try_registration(size_t card, const Known& known);
  Status open(Probe& probe, size_t card, const WaitLimit& limit);

  const std::shared_ptr<const Plugin> plugin_;
  const std::vector<Device> devices_;
  const Config config_;
  const Fd epoll_, timer_;
  MemoryMap<Known> known_;
  std::atomic<uint64_t> last_number_{0};
  std::deque<Probe> probes_;  // one for each device
  std::vector<NetChannel*> channels_;
  uint32_t turn_ = 0;
  Duration rest_;
  bool resting_ = false;  // the timer runs
};

}  // namespace hetccl::transport::ncclnet
