// The launching side of the one interpreter of Code: enqueues what an operation's streams do.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "ccl/ccl.h"
#include "device/device.h"
#include "exec/operation.h"
#include "exec/window.h"

namespace hetccl::exec {

/// How a reduction combines and, for pre-multiplied sums, scales. An average divides and a
/// pre-multiplied sum multiplies once, in the instructions that say so; all others sum.
[[nodiscard]] Reducer reducer_of(const Call& call, bool average, bool scale);

/// By the launching thread alone.
class Interpreter {
 public:
  /// `kinds`: the streams, but for the user's, that some Code uses. `ccl` may be null where no Code
  /// calls it.
  static Result<std::unique_ptr<Interpreter>> create(device::Device& device, ccl::Communicator* ccl,
                                                     int n_ranks,
                                                     std::initializer_list<lower::QueueKind> kinds);

  /// Has Code call `ccl` from now on.
  void use(ccl::Communicator& ccl) { ccl_ = &ccl; }
  /// Enqueues all that `op`'s streams do, `user` being the user's; `windows` by lane, null where
  /// the Code uses none. The caller runs what comes last, `Finish`.
  Status enqueue(Operation& op, device::Stream& user, std::span<Window* const> windows);
  /// A part of that: with those of other operations between them, none holds up another.
  Status enqueue(Operation& op, device::Stream& user, std::span<Window* const> windows,
                 lower::Part part);
  /// The same of the body alone, for a graph that records `user`.
  Status record(Operation& op, device::Stream& user);
  /// Has `user` wait for whatever the other streams were given.
  Status join(device::Stream& user);

 private:
  // The state of one launch.
  struct Frame {
    Operation& op;
    std::span<Window* const> windows;
  };
  using Slots = std::vector<std::unique_ptr<device::Event>>;

  Interpreter(device::Device& device, ccl::Communicator* ccl, int n_ranks);
  [[nodiscard]] device::Stream& stream_of(lower::QueueId queue) { return *streams_[queue]; }
  Status run_on_stream(Frame& frame, lower::Issue issue);
  Status run(Frame& frame, lower::Issue issue);
  Status wait(Operation& op, const lower::Instruction& code, uint32_t slice);
  Status signal(Operation& op, const lower::Instruction& code, uint32_t slice);
  static Result<Window*> window_of(const Frame& frame, const lower::Message& message);
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
  /// Whether `code` multiplies by Divisor::down.
  static bool scales_for_average(const Operation& op, const lower::Instruction& code);
  /// How the cluster's library reduces what `code` has it reduce.
  [[nodiscard]] Reducer library_reducer(const Operation& op, const lower::Instruction& code) const;
  Result<device::Event*> event_of(lower::SyncId sync, uint32_t slot);

  device::Device& device_;
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
