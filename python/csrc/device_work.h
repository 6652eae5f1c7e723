/// Work on a GPU: enqueued on streams, whose order does the rest.
#pragma once

#include "device_streams.h"
#include "work.h"

namespace hetccl::torch_backend {

/// Behaves like ProcessGroupNCCL's. A collective runs on its own stream, which waits for work that
/// the caller has enqueued. `wait` makes the caller's stream wait for it, without blocking the
/// host. A `blocking` collective runs on the caller's stream.
///
/// Only these block the host: wait(timeout), the wait of a barrier, and the wait of work with
/// results in host memory.
class DeviceWork final : public HetcclWork {
 public:
  DeviceWork(int rank, uint64_t sequence, std::shared_ptr<const GroupName> group, Request request,
             std::shared_ptr<Communicator> communicator, std::shared_ptr<Watcher> watcher,
             std::shared_ptr<DeviceStreams> streams);
  ~DeviceWork() override;

  void launch(std::chrono::milliseconds timeout, bool blocking) override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  /// Complete at once: waiting for it, and its callbacks, make a stream wait.
  FuturePtr getFuture() override;

 private:
  [[nodiscard]] bool reached() const override;
  [[nodiscard]] std::function<void()> until_reached() const override;
  [[nodiscard]] std::optional<Failure> failure() const override;
  void enqueue(std::chrono::milliseconds timeout, const c10::Stream& stream);
  void mark(const c10::Stream& stream);
  /// Prevents reuse of the tensors' memory until `stream` has reached this point.
  void keep_for(const c10::Stream& stream) const;

  const std::shared_ptr<DeviceStreams> streams_;
  Marks marks_;
  bool reaches_host_ = false;  ///< it has results in host memory
  bool captured_ = false;      ///< recorded in a graph, which runs it: nothing to wait for
  FuturePtr future_;           ///< guarded by settle_mutex_
};

}  // namespace hetccl::torch_backend
