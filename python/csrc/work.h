/// One collective in flight, as torch's Work.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "communicator.h"
#include "watcher.h"

namespace hetccl::torch_backend {

/// What a collective needs until it is complete. Everything here is kept alive until then, whether
/// or not the user keeps the Work.
struct Operation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "";           ///< "hetccl:all_reduce": what the profiler shows
  std::vector<at::Tensor> inputs;   ///< as the user passed them
  std::vector<at::Tensor> outputs;  ///< Work::result()
  std::vector<at::Tensor> staging;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  ///< (to, from), once complete
  std::vector<Launch> launches;
};

class HetcclWork : public c10d::Work {
 public:
  HetcclWork(int rank, uint64_t sequence, std::string group, Operation operation,
             std::shared_ptr<Communicator> communicator, std::shared_ptr<Watcher> watcher);
  ~HetcclWork() override;

  /// Enqueues the collective, or, `blocking`, runs it where nothing else is in flight. Throws when
  /// hetccl refuses it.
  void launch(std::chrono::milliseconds timeout, bool blocking);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void abort() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

 private:
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::exception_ptr error_of(const Failure& failure) const;
  /// Copies results to where they belong and records success or failure; the ticket is reached.
  void settle();
  void complete(c10::ivalue::Future& future);

  const int rank_in_group_;
  const uint64_t sequence_;
  const std::string group_;
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Watcher> watcher_;
  Operation operation_;
  uint64_t ticket_ = 0;
  bool launched_ = false;

  std::mutex settle_mutex_;
  std::atomic<bool> settled_{false};
  std::exception_ptr error_;  ///< written before settled_
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace hetccl::torch_backend
