// Checks, a few times per liveness period, that the hosts of a transport's peers still answer. It
// runs only while the engine is driven, because only a waiting call needs to know of a loss.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "transport/tcp/poller.h"

namespace hetccl::transport::tcp {

class TcpChannel;

/// Used by the engine's driver, or during a pause of its poller.
class PathWatch final : public Watched {
 public:
  /// `engine`, the poller of the engine's driver, must outlive it.
  static Result<std::unique_ptr<PathWatch>> create(Poller& engine,
                                                   std::chrono::milliseconds liveness);
  void add(TcpChannel& channel);
  void remove(const TcpChannel& channel);
  bool on_events(uint32_t events, size_t* budget) override;

 private:
  PathWatch(Poller& engine, std::chrono::milliseconds liveness, Fd timer)
      : engine_(engine), liveness_(liveness), timer_(std::move(timer)) {}
  void watch(bool on);

  Poller& engine_;
  const std::chrono::milliseconds liveness_;
  const Fd timer_;
  bool watched_ = false;
  std::vector<TcpChannel*> channels_;
};

}  // namespace hetccl::transport::tcp
