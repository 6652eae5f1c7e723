// Carries a communicator's data: the library of this rank's cluster, the channels to other ranks
// with their windows, and the pairs. It would be made anew if the members changed.
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

/// `open`, `serve` and `measure` by the thread that opens the communicator, in this order; `meet`
/// by the threads that launch, under the launch mutex; `stop` and `close` by the thread that
/// destroys it.
class Fabric {
 public:
  /// Both outlive it.
  Fabric(Context& context, Membership& membership) : context_(context), membership_(membership) {}

  /// Introduces this rank and its device, joins its cluster, and connects to other clusters.
  Status open();
  /// Makes the pairs of `executor`, which outlives `stop`. Before ranks share their measurements:
  /// notes of pairs come as soon as another rank makes calls.
  Status serve(exec::Executor& executor);
  /// Measures a link of this rank, whose first rank adds it to `mine`. `on_exception` as of
  /// Engine::add.
  Status measure(const tune::LinkToMeasure& link, const OnException& on_exception,
                 std::vector<topology::Measurement>& mine);

  /// Runs `change`, to what a driver uses, where nobody drives.
  void exclusively(const std::function<void()>& change) { context_.engine().exclusively(change); }
  /// Connects to the other ends of messages.
  Status meet(std::span<const exec::Message> messages);
  /// The first failure of the cluster's library. Thread-safe.
  [[nodiscard]] Status async_error();

  /// Returns once nothing connects any more.
  void stop();
  /// Frees all of it, which nobody uses any more. Where operations have not `ended`, the device may
  /// still write to it: then it is kept until the process ends.
  void close(bool ended);

  // Once it is open.
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
