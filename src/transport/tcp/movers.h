// Threads that move the streams of one transport's channels: the engine's driver, and helpers
// beside it, because one core cannot fill a fast network.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/tcp/path_watch.h"
#include "transport/tcp/poller.h"

namespace hetccl::transport::tcp {

/// Thread-safe. Shared by the transport and its channels; the last owner frees it.
class Movers {
 public:
  /// `liveness`: the time within which peers' hosts must answer (path_watch.h).
  static Result<std::shared_ptr<Movers>> create(size_t threads, std::chrono::milliseconds liveness);
  ~Movers();

  /// Starts the threads unless they run.
  Status start();
  /// Returns the number of pollers: the engine's, which is the first, and one for each thread.
  [[nodiscard]] size_t count() const { return pollers_.size(); }
  Poller& poller(size_t index) { return *pollers_[index]; }
  Poller& engine() { return *pollers_.front(); }
  PathWatch& paths() { return *paths_; }

  std::atomic<uint64_t> bytes_sent{0};

 private:
  Movers(std::vector<std::unique_ptr<Poller>> pollers, std::unique_ptr<PathWatch> paths)
      : pollers_(std::move(pollers)), paths_(std::move(paths)) {}
  void run(Poller& poller) const;

  const std::vector<std::unique_ptr<Poller>> pollers_;
  const std::unique_ptr<PathWatch> paths_;
  std::mutex mutex_;  // guards `start`
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace hetccl::transport::tcp
