// What the channels of one transport share: the plug-in, its devices, and the descriptor that the
// engine sleeps on. A plug-in has no descriptor, so while requests are outstanding a timer wakes
// the engine.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/fd.h"
#include "transport/ncclnet/plugin.h"

namespace hetccl::transport::ncclnet {

class NetChannel;

class Core {
 public:
  static Result<std::shared_ptr<Core>> create(std::shared_ptr<const Plugin> plugin,
                                              std::vector<Device> devices, const Config& config);

  /// Moves what can be moved: true when anything did. Once it returns false, `fd` polls readable
  /// when it is to be called again.
  bool progress();
  [[nodiscard]] int fd() const { return epoll_.get(); }
  [[nodiscard]] const std::shared_ptr<const Plugin>& plugin() const { return plugin_; }
  [[nodiscard]] const std::vector<Device>& devices() const { return devices_; }
  [[nodiscard]] const Config& config() const { return config_; }
  std::atomic<uint64_t> bytes_sent{0};
  /// Chunks for which memory is registered.
  std::atomic<size_t> registered{0};

  // For channels, with `mutex` held.
  std::mutex mutex;
  /// SystemError where a device has no connections left, or the system no memory.
  Status add(NetChannel& channel, int wire);
  void remove(NetChannel& channel);
  /// Also whether `wire` may be written to.
  void watch_writes(NetChannel& channel, int wire, bool writes);
  void unwatch(int wire);

 private:
  Core(std::shared_ptr<const Plugin> plugin, std::vector<Device> devices, const Config& config,
       Fd epoll, Fd timer);
  bool handle_events();
  void rest();

  const std::shared_ptr<const Plugin> plugin_;
  const std::vector<Device> devices_;
  const Config config_;
  const Fd epoll_, timer_;
  std::vector<NetChannel*> channels_;
  uint32_t turn_ = 0;
  Duration rest_;
  bool resting_ = false;  // the timer runs
};

}  // namespace hetccl::transport::ncclnet
