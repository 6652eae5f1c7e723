/// One collective in flight, as torch's Work.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "communicator.h"
#include "watcher.h"

namespace hetccl::torch_backend {

class HetcclWork;
using Tensors = std::vector<at::Tensor>;

/// What a collective needs until it is complete. Everything here is kept alive until then, whether
/// or not the user keeps the Work.
struct Operation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "";  ///< "hetccl:all_reduce": what the profiler shows
  Tensors inputs;          ///< as the user passed them
  Tensors outputs;         ///< Work::result()
  Tensors staging;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  ///< (to, from), once complete
  Route route;
  std::vector<Launch> launches;
  std::vector<c10::intrusive_ptr<HetcclWork>> members;  ///< launched; complete before this is
};

class HetcclWork : public c10d::Work {
 public:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

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
  void blockCurrentStream() override;  ///< waits: host memory has no stream that could be blocked
  void abort() override;
  std::vector<at::Tensor> result() override;
  FuturePtr getFuture() override;        ///< of the outputs; carries the error of failed work
  FuturePtr getFutureResult() override;  ///< of a WorkResult, an integer; never an error
  uint64_t getSequencenumber() const override;

 private:
  enum Promise : uint8_t { kOutputs, kOutcome };

  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::exception_ptr error_of(const Failure& failure) const;
  [[nodiscard]] bool reached() const;
  /// Blocks until that.
  [[nodiscard]] std::function<void()> until_reached() const;
  /// Copies results to where they belong and records success or failure; the tickets are reached.
  void settle();
  void settle_contents();  ///< the lock is held
  FuturePtr promise(Promise promise);
  /// Completes what was promised before this work settled.
  void keep_promises();
  void keep(Promise promise, c10::ivalue::Future& future) const;

  const int rank_in_group_;
  const uint64_t sequence_;
  const std::string group_;
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Watcher> watcher_;
  Operation operation_;
  std::vector<Ticket> tickets_;  ///< the last of each route
  bool launched_ = false;

  std::mutex settle_mutex_;
  std::atomic<bool> settled_{false};
  std::exception_ptr error_;                              ///< written before settled_
  c10d::WorkResult outcome_ = c10d::WorkResult::SUCCESS;  ///< written before settled_
  std::array<FuturePtr, 2> futures_;                      ///< by Promise, once asked for
  std::vector<Promise> awaited_;                          ///< that the watcher is to keep
};

}  // namespace hetccl::torch_backend
