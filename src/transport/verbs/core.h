// The state that the channels of one transport share: the ports, the descriptor that becomes
// readable for their events, and how much memory they may lock.
#pragma once

#include <atomic>
#include <cstdint>
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

  /// Moves what can be moved: true when anything did.
  bool progress();
  /// Transport::arm.
  void arm(bool on);
  [[nodiscard]] int fd() const { return epoll_.get(); }
  [[nodiscard]] const std::vector<Port>& ports() const { return ports_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] Registry& registry() const { return *registry_; }
  std::atomic<uint64_t> bytes_sent{0};

  /// Makes sure that `more` channels beside those there are may lock the memory without which they
  /// cannot go on. SystemError naming the limit. Thread-safe.
  Status reserve(size_t more);

  /// Whether memory that stays registered takes none from channels: there is no limit.
  [[nodiscard]] bool locks_freely() const { return locks_freely_; }

  // For channels, with `mutex` held.
  std::mutex mutex;
  Status add(VerbsChannel& channel, int wire);
  void remove(VerbsChannel& channel);
  void unwatch(int fd);
  /// Descriptors are looked at next turn.
  void look() { looks_ = true; }

  // For channels, without it.
  /// Chunks for which memory is registered: to write them to a peer, or to receive a peer's.
  std::atomic<size_t> writes{0}, grants{0};
  /// Whether another chunk may be granted. Grants end once the peer has written, so a write must
  /// find memory though all others go to grants.
  [[nodiscard]] bool may_grant() const;

 private:
  class Completions;
  class Failures;
  Core(std::vector<Port> ports, const Config& config, Fd epoll);
  Status watch(int fd, Watched& watched);
  Status require(size_t channels, size_t bytes);
  /// Memory that a channel locks while it is open.
  [[nodiscard]] size_t channel_locks() const;
  Status watch_device(const std::shared_ptr<Device>& device);
  void handle_events();
  void arm_all();

  const std::vector<Port> ports_;
  const Config config_;
  const std::shared_ptr<Registry> registry_;
  const Fd epoll_;
  std::vector<std::unique_ptr<Watched>> events_;
  std::vector<VerbsChannel*> channels_;
  std::atomic<size_t> open_{0};             // of channels_
  std::atomic<size_t> lockable_{SIZE_MAX};  // bytes, as far as they have been asked for
  uint32_t turn_ = 0;
  bool looks_ = false;  // at descriptors, next turn
  bool armed_ = false;
  bool locks_freely_ = false;
};

}  // namespace hetccl::transport::verbs
