// Carries a communicator's data: this rank's cluster library, the channels and windows to other
// ranks, and the pairs. A change of members would need a new Fabric.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/exception.h"
#include "comm/channels.h"
#include "comm/membership.h"
#include "comm/pairs.h"
#include "tune/probes.h"

namespace hetccl::comm {

/// The thread that opens the communicator calls `open`, `serve` and `measure`, in this order.
/// Threads that launch call `meet` under the launch mutex. The thread that destroys the
/// communicator calls `stop` and `close`.
class Fabric {
 public:
  /// Both must outlive it.
  Fabric(Context& context, Membership& membership) : context_(context), membership_(membership) {}

  /// Introduces this rank and its device, joins its cluster, and connects to other clusters.
  Status open();
  /// Makes the pairs of `executor`, which outlives `stop`. Call before ranks share measurements:
  /// notes about pairs arrive as soon as another rank makes calls.
  Status serve(exec::Executor& executor);
  /// Measures one of this rank's links. The first rank of the link adds the result to `mine`.
  /// `on_exception` as in Engine::add.
  Status measure(const tune::LinkToMeasure& link, const OnException& on_exception,
                 std::vector<topology::Measurement>& mine);

  /// Runs `change` while the engine is not driving, so it may change what drivers use.
  void exclusively(const std::function<void()>& change) { context_.engine().exclusively(change); }
  /// Connects to the peers of `messages`.
  Status meet(std::span<const exec::Message> messages);
  /// Returns the first failure of the cluster's library. Thread-safe.
  [[nodiscard]] Status async_error();

  /// Waits until no connection is being made.
  void stop();
  /// Frees everything; nothing may use it any more. If operations have not `ended`, the device may
  /// still write to this memory, so it is kept until the process ends.
  void close(bool ended);

  // Requires an open fabric.
  [[nodiscard]] device::Device& device() const { return *device_; }
  [[nodiscard]] ccl::Communicator& ccl() const { return *ccl_; }
  [[nodiscard]] Channels& channels() const { return *channels_; }
  /// Null before `serve`.
  [[nodiscard]] Pairs* pairs() const { return pairs_.get(); }

 private:
  Status join_cluster();

  Context& context_;
  Membership& membership_;
  device::Device* device_ = nullptr;
  ccl::Library* library_ = nullptr;
  std::unique_ptr<ccl::Communicator> ccl_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<Pairs> pairs_;
};

}  // namespace hetccl::comm
