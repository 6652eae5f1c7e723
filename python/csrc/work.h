/// One pending collective as a torch Work: the part that is common to host and GPUs.
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

/// Calls of the C API that torch has asked for, and the objects that they need. Everything here is
/// kept alive until the calls are complete, even if the user drops the Work.
struct Request {
  Request() = default;
  Request(c10d::OpType kind, const char* name, Tensors from = {}, Tensors to = {})
      : type(kind), title(name), inputs(std::move(from)), outputs(std::move(to)) {}

  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "";  ///< the name in profiles: "hetccl:all_reduce"
  Tensors inputs;          ///< as the user passed them
  Tensors outputs;         ///< Work::result()
  Tensors staging;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  ///< (to, from), to copy once complete
  /// The same for host tensors of a rank on a GPU: copied by the host, after `copies`.
  std::vector<std::pair<at::Tensor, at::Tensor>> host_copies;
  std::function<void()> conclude;  ///< runs after the copies; for work that no copy can express.
                                   ///< May be empty
  c10::Device device{c10::kCPU};   ///< the communicator's
  OrderKey order;
  std::shared_ptr<int> source;  ///< receive from any rank: the sender, once complete; else null
  std::vector<ApiCall> calls;
  std::vector<c10::intrusive_ptr<HetcclWork>> members;  ///< launched works that must complete
                                                        ///< before this one

  /// The call was refused or has failed: drops its results.
  void drop_results() {
    copies.clear();
    host_copies.clear();
    conclude = nullptr;
  }
};

/// A process group's names in errors.
struct GroupName {
  std::string id;
  std::vector<uint64_t> global_ranks;  ///< by rank in the group; empty for the default group
};

/// Work of one communicator, on the host (HostWork) or on a GPU (DeviceWork).
class HetcclWork : public c10d::Work {
 public:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

  HetcclWork(int rank, uint64_t sequence, std::shared_ptr<const GroupName> group, Request request,
             std::shared_ptr<Communicator> communicator, std::shared_ptr<Watcher> watcher);

  /// Enqueues the collective; with `blocking`, runs it as part of the caller's own work. Throws if
  /// hetccl refuses it.
  virtual void launch(std::chrono::milliseconds timeout, bool blocking) = 0;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  void synchronize() override;
  void blockCurrentStream() override;  ///< host memory has no stream to block, so it waits
  void abort() override;
  std::vector<at::Tensor> result() override;
  FuturePtr getFuture() override;        ///< of the outputs; carries the error of failed work
  FuturePtr getFutureResult() override;  ///< of a WorkResult as an integer; never an error
  uint64_t getSequencenumber() const override;

 protected:
  enum Promise : uint8_t { kOutputs, kOutcome };

  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::exception_ptr error_of(const Failure& failure) const;
  [[nodiscard]] std::exception_ptr error_of_wait(std::chrono::milliseconds timeout) const;
  /// Whether the launched calls are complete or have failed.
  [[nodiscard]] virtual bool reached() const = 0;
  /// Returns a function that blocks until `reached`.
  [[nodiscard]] virtual std::function<void()> until_reached() const = 0;
  /// Why it has failed. Valid once it is `reached`.
  [[nodiscard]] virtual std::optional<Failure> failure() const { return communicator_->failure(); }
  [[nodiscard]] bool settled() const { return settled_.load(std::memory_order_acquire); }
  /// Copies results to their destinations and records success or failure. Requires `reached`.
  void settle();
  /// Throws the error of settled work.
  void check() const;
  /// For destructors: keeps memory that the library still uses until the work is complete.
  void keep_until_complete();
  /// Frees all tensors except the outputs.
  void release_tensors();

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Watcher> watcher_;
  Request request_;
  bool launched_ = false;
  std::atomic<bool> held_{true};  ///< false after `release_tensors`
  std::mutex settle_mutex_;

 private:
  [[nodiscard]] Request take_held_locked();
  void settle_contents();  ///< requires the lock
  FuturePtr promise(Promise promise);
  /// Completes futures that were requested before this work settled.
  void keep_promises();
  void keep(Promise promise, c10::ivalue::Future& future) const;

  const int rank_in_group_;
  const uint64_t sequence_;
  const std::shared_ptr<const GroupName> group_;

  std::atomic<bool> settled_{false};
  std::exception_ptr error_;                              ///< written before settled_
  c10d::WorkResult outcome_ = c10d::WorkResult::SUCCESS;  ///< written before settled_
  std::array<FuturePtr, 2> futures_;                      ///< by Promise; null until requested
  std::vector<Promise> awaited_;                          ///< futures for the watcher to complete
};

}  // namespace hetccl::torch_backend
