// The launching half of the interpreter of Code: enqueues the streams' instructions of an
// operation.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "ccl/ccl.h"
#include "device/device.h"
#include "exec/batch.h"
#include "exec/operation.h"
#include "exec/window.h"

namespace hetccl::exec {

/// Used by the launching thread only.
class Interpreter {
 public:
  /// `kinds`: the streams, besides the user's, that the Code uses. `ccl` may be null if no Code
  /// calls it. All interpreters of an executor share `batch`, which outlives them; whoever enqueues
  /// also flushes it.
  static Result<std::unique_ptr<Interpreter>> create(device::Device& device, Batch& batch,
                                                     ccl::Communicator* ccl, int n_ranks,
                                                     std::initializer_list<lower::QueueKind> kinds);

  /// Makes later Code call `ccl`.
  void use(ccl::Communicator& ccl) { ccl_ = &ccl; }
  /// Enqueues all stream work of `op`; `user` is the user's stream. `windows` are by lane, null for
  /// lanes without one.
  Status enqueue(Operation& op, device::Stream& user, std::span<Window* const> windows);
  /// Enqueues one part of `op`, so that parts of several operations interleave and none blocks
  /// another. With `user` null nothing waits for the user stream's instructions, and their signals
  /// are given at once.
  Status enqueue(Operation& op, device::Stream* user, std::span<Window* const> windows,
                 lower::Part part);
  /// Enqueues the body alone, for a graph that captures `user`.
  Status record(Operation& op, device::Stream& user);
  /// Call after `enqueue` has failed: `op` ends once all streams have finished the work that they
  /// were given.
  void give_up(Operation& op, device::Stream* user);

 private:
  // The state of one launch.
  struct Frame {
    Operation& op;
    std::span<Window* const> windows;
  };
  using Slots = std::vector<std::unique_ptr<device::Event>>;

  Interpreter(device::Device& device, Batch& batch, ccl::Communicator* ccl, int n_ranks);
  [[nodiscard]] device::Stream& stream_of(lower::QueueId queue) { return *streams_[queue]; }
  void use(device::Stream* user) { streams_[lower::stream_queue(lower::QueueKind::User)] = user; }
  Status run_on_stream(Frame& frame, lower::Issue issue);
  Status run(Frame& frame, lower::Issue issue);
  Status wait(Operation& op, const lower::Instruction& code, uint32_t slice);
  Status signal(Operation& op, const lower::Instruction& code, uint32_t slice);
  Status signal_stream(device::Stream* stream, device::Flag& flag, uint32_t count);
  Status finish(Operation& op, device::Stream* stream);
  Status join(device::Stream& user);
  static Result<Window*> window_of(const Frame& frame, const lower::LaneMessage& message);
  Status reserve(Frame& frame, const lower::Instruction& code, uint32_t slice);
  Status locate(Frame& frame, const lower::Instruction& code, uint32_t slice);
  Status copy(Operation& op, const lower::Instruction& code, uint32_t slice);
  Status reduce(Operation& op, const lower::Instruction& code, uint32_t slice);
  Status all_reduce(Operation& op, const lower::Instruction& code, uint32_t slice);
  Status call_shards(Operation& op, const lower::Instruction& code, uint32_t slice);
  Status exchange(Operation& op, const lower::Instruction& code, uint32_t slice);
  /// Sets operator, factor and divisor.
  void choose_operator(device::Reduction& reduction, const Operation& op,
                       const lower::Instruction& code) const;
  /// Returns the reducer that the cluster's library uses for `code`.
  [[nodiscard]] Reducer library_reducer(const Operation& op, const lower::Instruction& code) const;
  Result<device::Event*> event_of(lower::SyncId sync, uint32_t slot);

  device::Device& device_;
  Batch& batch_;
  ccl::Communicator* ccl_;
  const int n_ranks_;
  std::array<std::unique_ptr<device::Stream>, lower::kStreams> own_;  // without the user's
  std::array<device::Stream*, lower::kStreams> streams_{};
  std::unique_ptr<device::Event> joined_;
  std::vector<Slots> events_;  // by sync; shared by all Code
  std::vector<ccl::Shard> shards_;
  std::vector<ccl::Transfer> transfers_;
};

}  // namespace hetccl::exec
