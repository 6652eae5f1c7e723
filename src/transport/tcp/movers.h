// Who moves the streams of one transport's channels: whoever drives the engine, and threads beside
// it, since one core fills no fast network.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/tcp/poller.h"

namespace hetccl::transport::tcp {

/// Thread-safe. Kept alive by the transport and its channels, whichever goes last.
class Movers {
 public:
  static Result<std::shared_ptr<Movers>> create(size_t threads);
  ~Movers();

  /// Starts the threads unless they run.
  Status start();
  /// Of the engine and of each thread; the engine's is the first.
  [[nodiscard]] size_t count() const { return pollers_.size(); }
  Poller& poller(size_t index) { return *pollers_[index]; }
  Poller& engine() { return *pollers_.front(); }

  std::atomic<uint64_t> bytes_sent{0};

 private:
  explicit Movers(std::vector<std::unique_ptr<Poller>> pollers) : pollers_(std::move(pollers)) {}
  void run(Poller& poller) const;

  const std::vector<std::unique_ptr<Poller>> pollers_;
  std::mutex mutex_;  // of start
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace hetccl::transport::tcp
