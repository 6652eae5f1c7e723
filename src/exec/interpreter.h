// The launching side of the one interpreter of Code: enqueues what an operation's streams do.
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

/// By the launching thread alone.
class Interpreter {
 public:
  /// `kinds`: the streams, but for the user's, that some Code uses. `ccl` may be null where no Code
  /// calls it.
  /// `batch`, of all interpreters of an executor, outlives it: whoever enqueues flushes it.
  static Result<std::unique_ptr<Interpreter>> create(device::Device& device, Batch& batch,
                                                     ccl::Communicator* ccl, int n_ranks,
                                                     std::initializer_list<lower::QueueKind> kinds);

  /// Has Code call `ccl` from now on.
  void use(ccl::Communicator& ccl) { ccl_ = &ccl; }
  /// Enqueues all that `op`'s streams do, `user` being the user's; `windows` by lane, null where
  /// the Code uses none.
  Status enqueue(Operation& op, device::Stream& user, std::span<Window* const> windows);
  /// A part of that: with those of other operations between them, none holds up another. Where
  /// `user` is null, nobody waits for what its stream would, and what it would tell is told at
  /// once.
  Status enqueue(Operation& op, device::Stream* user, std::span<Window* const> windows,
                 lower::Part part);
  /// The same of the body alone, for a graph that records `user`.
  Status record(Operation& op, device::Stream& user);
  /// After `enqueue` has failed: `op` ends once all streams have done what they were given.
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
  Status tell(device::Stream* stream, device::Flag& flag, uint32_t count);
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
  /// How the cluster's library reduces what `code` has it reduce.
  [[nodiscard]] Reducer library_reducer(const Operation& op, const lower::Instruction& code) const;
  Result<device::Event*> event_of(lower::SyncId sync, uint32_t slot);

  device::Device& device_;
  Batch& batch_;
  ccl::Communicator* ccl_;
  const int n_ranks_;
  std::array<std::unique_ptr<device::Stream>, lower::kStreams> own_;  // but the user's
  std::array<device::Stream*, lower::kStreams> streams_{};
  std::unique_ptr<device::Event> joined_;
  std::vector<Slots> events_;  // by sync; shared by all Code
  std::vector<ccl::Shard> shards_;
  std::vector<ccl::Transfer> transfers_;
};

}  // namespace hetccl::exec
