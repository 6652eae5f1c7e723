// What the channels of one transport share: the ports, the descriptor that tells of their events,
// and how much memory they may lock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/config.h"
#include "base/fd.h"
#include "transport/verbs/device.h"
#include "transport/verbs/registry.h"

namespace hetccl::transport::verbs {

class VerbsChannel;

/// A descriptor of a core's epoll instance.
class Watched {
 public:
  virtual ~Watched() = default;
  /// With the core's mutex held.
  virtual void on_readable() = 0;
};

class Core {
 public:
  /// `ports`: usable ones.
  static Result<std::shared_ptr<Core>> create(std::vector<Port> ports, const Config& config);

  /// Moves what can be moved: true when anything did. Once it returns false, the next completion
  /// makes `fd` readable.
  bool progress();
  [[nodiscard]] int fd() const { return epoll_.get(); }
  [[nodiscard]] const std::vector<Port>& ports() const { return ports_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] Registry& registry() const { return *registry_; }
  std::atomic<uint64_t> bytes_sent{0};

  /// Makes sure that `more` channels beside those there are may lock the memory that they need.
  /// SystemError naming the limit. Thread-safe.
  Status reserve(size_t more);

  // For channels, with `mutex` held.
  std::mutex mutex;
  Status add(VerbsChannel& channel, int wire);
  void remove(VerbsChannel& channel);
  void unwatch(int fd);
  /// Chunks for which memory is registered.
  std::atomic<size_t> chunks{0};

 private:
  class Events;
  Core(std::vector<Port> ports, const Config& config, Fd epoll);
  Status watch(int fd, Watched& watched);
  bool handle_events();
  bool arm_all();

  const std::vector<Port> ports_;
  const Config config_;
  const std::shared_ptr<Registry> registry_;
  const Fd epoll_;
  std::vector<std::unique_ptr<Watched>> events_;
  std::vector<VerbsChannel*> channels_;
  uint32_t turn_ = 0;
};

}  // namespace hetccl::transport::verbs
