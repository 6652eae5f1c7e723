/// Work in host memory: a thread that waits for it drives it.
#pragma once

#include <vector>

#include "work.h"

namespace hetccl::torch_backend {

class HostWork final : public HetcclWork {
 public:
  using HetcclWork::HetcclWork;
  ~HostWork() override;

  void launch(std::chrono::milliseconds timeout, bool blocking) override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  [[nodiscard]] bool reached() const override;
  [[nodiscard]] std::function<void()> until_reached() const override;

  std::vector<hetcclWork_t> works_;
};

/// Seconds that this thread has spent blocked in calls on host memory and in their waits. Excludes
/// futures and GPUs.
[[nodiscard]] double seconds_waited();

}  // namespace hetccl::torch_backend
