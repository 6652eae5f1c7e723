/// Work on a GPU: enqueued on its streams, in whose order everything else follows.
#pragma once

#include "device_streams.h"
#include "work.h"

namespace hetccl::torch_backend {

/// As ProcessGroupNCCL's: a collective runs on a stream of its own, which waits for what the caller
/// has enqueued; `wait` makes the caller's stream wait for it, and the host goes on. A `blocking`
/// one runs on the caller's stream itself.
///
/// Only these block the host: wait(timeout), the wait of a barrier, and that of work which brings
/// results into host memory.
class DeviceWork final : public HetcclWork {
 public:
  DeviceWork(int rank, uint64_t sequence, std::shared_ptr<const GroupName> group, Request request,
             std::shared_ptr<Communicator> communicator, std::shared_ptr<Watcher> watcher,
             std::shared_ptr<DeviceStreams> streams);
  ~DeviceWork() override;

  void launch(std::chrono::milliseconds timeout, bool blocking) override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  /// Complete at once: waiting for it, or its callbacks, makes a stream wait.
  FuturePtr getFuture() override;

 private:
  [[nodiscard]] bool reached() const override;
  [[nodiscard]] std::function<void()> until_reached() const override;
  [[nodiscard]] std::optional<Failure> failure() const override;
  void enqueue(std::chrono::milliseconds timeout, const c10::Stream& stream);
  void mark(const c10::Stream& stream);
  /// Their memory is not given to others before `stream` has come to this point.
  void keep_for(const c10::Stream& stream) const;

  const std::shared_ptr<DeviceStreams> streams_;
  Marks marks_;
  bool reaches_host_ = false;  ///< it brings results into host memory
  bool captured_ = false;      ///< part of a graph, which decides when it runs: nothing to wait for
  FuturePtr future_;           ///< guarded by settle_mutex_
};

}  // namespace hetccl::torch_backend
