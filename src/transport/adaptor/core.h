// The transport that an adaptor has opened, shared by its channels.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "adaptor/calls.h"
#include "base/fd.h"
#include "base/status.h"
#include "transport/transport.h"

namespace hetccl::transport::adaptors {

using Part = adaptor::Part<hetcclTransportAdaptor>;

class AdaptorChannel;

/// Counts threads that connect. hetccl may have abandoned some of them inside the adaptor's
/// `connect`.
class Visits {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++n_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    --n_;
    none_.notify_all();
  }
  void wait(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    none_.wait_for(lock, limit, [this] { return n_ == 0; });
  }

 private:
  std::mutex mutex_;  // guards the members below
  std::condition_variable none_;
  int n_ = 0;
};

/// Shared by the transport, its channels, and abandoned connects. The last owner ends the adaptor's
/// transport.
class Core {
 public:
  /// Opens the transport; sets `address` to where it listens. `hosts`: IP addresses of this host.
  static Result<std::shared_ptr<Core>> open(std::shared_ptr<const Part> part,
                                            const std::vector<std::string>& hosts,
                                            Address& address);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] const Part& part() const { return *part_; }
  [[nodiscard]] void* transport() const { return transport_; }

  /// Moves data where possible, and takes completions of all channels.
  bool progress();
  /// Runs only the adaptor's progress, for a thread that connects one channel, and wakes the engine
  /// for all others. Requires the mutex.
  Status move_for_connect();
  /// Polls readable when `progress` has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.get(); }

  /// Guards the adaptor's calls except `connect`, the channels' state, and the members below.
  std::mutex mutex;
  std::vector<AdaptorChannel*> channels;  ///< proven and open
  std::atomic<uint64_t> bytes_sent{0};

 private:
  explicit Core(std::shared_ptr<const Part> part) : part_(std::move(part)) {}
  Status watch();
  Result<bool> move();
  void stop_watching();

  const std::shared_ptr<const Part> part_;
  void* transport_ = nullptr;
  Fd epoll_, bell_;
  int watched_ = -1;  // the adaptor's descriptor
  std::atomic<bool> rung_{false};
  Status failure_;  // of `progress`; reported to all channels
};

}  // namespace hetccl::transport::adaptors
