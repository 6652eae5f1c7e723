// The state that the channels of one transport share: the ports, the descriptor that polls readable
// for their events, and the limit of locked memory.
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

/// Handles a descriptor of a core's epoll instance.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Called with the core's mutex held.
  virtual void on_readable() = 0;
};

class Core {
 public:
  /// `ports` must be usable.
  static Result<std::shared_ptr<Core>> create(std::vector<Port> ports, const Config& config);

  /// Moves data without blocking. Returns true if anything moved.
  bool progress();
  /// See Transport::arm.
  void arm(bool on);
  [[nodiscard]] int fd() const { return epoll_.get(); }
  [[nodiscard]] const std::vector<Port>& ports() const { return ports_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] Registry& registry() const { return *registry_; }
  std::atomic<uint64_t> bytes_sent{0};

  /// Checks that the process may lock the least memory that `more` further channels need. Returns
  /// SystemError naming the limit. Thread-safe.
  Status reserve(size_t more);

  /// Returns whether lasting registrations leave channels enough memory to lock, because the limit
  /// is none or high.
  [[nodiscard]] bool locks_freely() const { return locks_freely_; }

  // For channels, with `mutex` held.
  std::mutex mutex;
  Status add(VerbsChannel& channel, int wire);
  void remove(VerbsChannel& channel);
  void unwatch(int fd);
  /// Makes the next turn look at the descriptors.
  void look() { looks_ = true; }

  // For channels, without it.
  /// Number of chunks whose memory is registered for them alone: to write to a peer, and to be
  /// written by a peer.
  std::atomic<size_t> writes{0}, grants{0};
  /// Returns whether another chunk may be granted. A grant ends only when the peer has written, so
  /// grants must always leave enough memory for one write, or both ends could wait for each other.
  [[nodiscard]] bool may_grant() const;

 private:
  class Completions;
  class Failures;
  Core(std::vector<Port> ports, const Config& config, Fd epoll);
  Status watch(int fd, Watched& watched);
  Status require(size_t channels, size_t bytes);
  /// Returns the memory that a channel locks while it is open.
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
  std::atomic<size_t> open_{0};             // size of channels_
  std::atomic<size_t> lockable_{SIZE_MAX};  // bytes that may be locked, as far as known
  uint32_t turn_ = 0;
  bool looks_ = false;  // the next turn looks at the descriptors
  bool armed_ = false;
  bool locks_freely_ = false;
};

}  // namespace hetccl::transport::verbs
