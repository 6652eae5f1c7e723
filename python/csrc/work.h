/// One collective in flight, as torch's Work: what is alike on the host and on GPUs.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "communicator.h"
#include "watcher.h"

namespace hetccl::torch_backend {

class HetcclWork;
using Tensors = std::vector<at::Tensor>;

/// Calls of the C API that torch has asked for, and what they need until they are complete.
/// Everything here is kept alive until then, whether or not the user keeps the Work.
struct Request {
  Request() = default;
  Request(c10d::OpType kind, const char* name, Tensors from = {}, Tensors to = {})
      : type(kind), title(name), inputs(std::move(from)), outputs(std::move(to)) {}

  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "";  ///< "hetccl:all_reduce": what the profiler shows
  Tensors inputs;          ///< as the user passed them
  Tensors outputs;         ///< Work::result()
  Tensors staging;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  ///< (to, from), once complete
  /// The same, to host tensors that a rank on a GPU was given: for the host, after `copies`.
  std::vector<std::pair<at::Tensor, at::Tensor>> host_copies;
  std::function<void()> conclude;  ///< then this: what no copy can say. May be empty
  c10::Device device{c10::kCPU};   ///< the communicator's
  OrderKey order;
  std::shared_ptr<int> source;  ///< of a receive from any rank, once it is complete; else null
  std::vector<ApiCall> calls;
  std::vector<c10::intrusive_ptr<HetcclWork>> members;  ///< launched; complete before this is

  /// It was refused, or has failed: nothing is brought to where results belong.
  void drop_results() {
    copies.clear();
    host_copies.clear();
    conclude = nullptr;
  }
};

/// A process group as errors call it.
struct GroupName {
  std::string id;
  std::vector<uint64_t> global_ranks;  ///< by its own ranks; none in the default group
};

/// The work of one communicator: on the host (HostWork) or on a GPU (DeviceWork).
class HetcclWork : public c10d::Work {
 public:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

  HetcclWork(int rank, uint64_t sequence, std::shared_ptr<const GroupName> group, Request request,
             std::shared_ptr<Communicator> communicator, std::shared_ptr<Watcher> watcher);

  /// Enqueues the collective, or, `blocking`, runs it as part of what the caller does anyway.
  /// Throws when hetccl refuses it.
  virtual void launch(std::chrono::milliseconds timeout, bool blocking) = 0;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  void synchronize() override;
  void blockCurrentStream() override;  ///< host memory has no stream that could be blocked: waits
  void abort() override;
  std::vector<at::Tensor> result() override;
  FuturePtr getFuture() override;        ///< of the outputs; carries the error of failed work
  FuturePtr getFutureResult() override;  ///< of a WorkResult, an integer; never an error
  uint64_t getSequencenumber() const override;

 protected:
  enum Promise : uint8_t { kOutputs, kOutcome };

  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::exception_ptr error_of(const Failure& failure) const;
  [[nodiscard]] std::exception_ptr error_of_wait(std::chrono::milliseconds timeout) const;
  /// What was launched is complete, or has failed.
  [[nodiscard]] virtual bool reached() const = 0;
  /// Blocks until that.
  [[nodiscard]] virtual std::function<void()> until_reached() const = 0;
  /// Why it has failed, once it is `reached`.
  [[nodiscard]] virtual std::optional<Failure> failure() const { return communicator_->failure(); }
  [[nodiscard]] bool settled() const { return settled_.load(std::memory_order_acquire); }
  /// Copies results to where they belong and records success or failure; it is `reached`.
  void settle();
  /// Throws the error of settled work.
  void check() const;
  /// For destructors: keeps what the library still reads and writes, until it is complete.
  void keep_until_complete();
  /// Frees all but the outputs.
  void release_tensors();

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Watcher> watcher_;
  Request request_;
  bool launched_ = false;
  std::atomic<bool> held_{true};  ///< until `release_tensors`
  std::mutex settle_mutex_;

 private:
  [[nodiscard]] Request take_held_locked();
  void settle_contents();  ///< the lock is held
  FuturePtr promise(Promise promise);
  /// Completes what was promised before this work settled.
  void keep_promises();
  void keep(Promise promise, c10::ivalue::Future& future) const;

  const int rank_in_group_;
  const uint64_t sequence_;
  const std::shared_ptr<const GroupName> group_;

  std::atomic<bool> settled_{false};
  std::exception_ptr error_;                              ///< written before settled_
  c10d::WorkResult outcome_ = c10d::WorkResult::SUCCESS;  ///< written before settled_
  std::array<FuturePtr, 2> futures_;                      ///< by Promise, once asked for
  std::vector<Promise> awaited_;                          ///< that the watcher is to keep
};

}  // namespace hetccl::torch_backend
