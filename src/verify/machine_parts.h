// Parts of the machine; see machine.h.
#pragma once

#include <memory>
#include <vector>

#include "lower/group.h"
#include "verify/machine.h"
#include "verify/rank_state.h"

namespace hetccl::verify {

/// First of the threads that stand for ranks' callers, to track what a barrier has told each rank.
inline constexpr ThreadId kCallers = 1U << 30U;
inline constexpr lower::QueueId kUser = lower::stream_queue(lower::QueueKind::User);

enum class Advance : uint8_t { Blocked, Done };

class Machine {
 public:
  Machine(std::span<const Launch> launches, const MachineOptions& options);

  Status run();

 private:
  struct InFlight : Launch {
    const Cells* cells = nullptr;
    uint32_t first_tag = 0;    ///< tag of its first slice; tags number the slices of all calls
    uint32_t first_place = 0;  ///< place of its first library call (Expressions::reduce)
    bool is_barrier = false;
    std::vector<uint32_t> arrived{};  ///< by slice and group: number of ranks that have arrived
  };
  /// A use of memory by the current instruction.
  struct Access {
    uint32_t place = 0;
    Cells::Range range;
    bool writes = false;
    size_t element = 0;
  };
  /// A call of a cluster's library, evaluated in `place` (Expressions::reduce).
  struct LibraryCall {
    const Matching::Group* group;
    uint32_t call, slice, place;
  };

  // machine_open.cc
  Status open(int number);
  void open_call(RankState& rank, uint32_t call);
  Status check_scratch(const RankState& rank, uint32_t call) const;
  void open_lanes(RankState& rank, uint32_t call);
  Status join_lanes(RankState& rank);
  Status make_rings(RankState& rank, uint32_t call);
  void map_caller(RankState& rank, uint32_t call);
  void map_buffers(RankState& rank, uint32_t call);
  void take_turn(RankState& rank, uint32_t call);
  void enqueue(RankState& rank, uint32_t call);
  void enqueue_group(RankState& rank, uint32_t first, uint32_t end);
  [[nodiscard]] lower::Group::Way way_of(const RankState& rank, uint32_t call) const;
  void enqueue_action(RankState& rank, uint32_t call, const lower::Group::Action& action);
  void enqueue_instruction(RankState& rank, uint32_t call, lower::Issue issue);

  // machine_streams.cc
  Result<bool> advance(RankState& rank);
  Result<Advance> run_next(RankState& rank);
  Result<Advance> run_stream(RankState& rank, const Enqueued& at);
  static void await_stream(RankState& rank, ThreadId stream, ThreadId other);
  void finish_instruction(RankState& rank, uint32_t call, const lower::Instruction& one,
                          ThreadId thread);
  Advance wait(RankState& rank, const Enqueued& at);
  Result<Advance> reserve(RankState& rank, const Enqueued& at);
  void locate(RankState& rank, const Enqueued& at);
  Status compute(RankState& rank, const Enqueued& at);

  // machine_library.cc
  Result<Advance> call_library(RankState& rank, const Enqueued& at);
  Status run_library(uint32_t group, uint32_t call, uint32_t slice);
  RankState& member(const LibraryCall& at, size_t local);
  const lower::Instruction& code_of(const LibraryCall& at, size_t local);
  Result<std::vector<Value>> load_of(const LibraryCall& at, size_t local,
                                     const lower::Operand& operand);
  Status enter_library(const LibraryCall& at);
  Status all_reduce(const LibraryCall& at);
  uint32_t slices_of(const LibraryCall& at, size_t local);
  Status exchange(const LibraryCall& at);
  Status exchange_slice(const LibraryCall& at);
  Result<std::vector<Value>> result_of_shard(const LibraryCall& at, size_t shard);

  // machine_lanes.cc
  Result<bool> run_lane(RankState& rank, size_t lane, LaneQueue& queue, lower::QueueKind kind);
  Result<Advance> start(RankState& rank, size_t lane, LaneQueue& queue, lower::QueueKind kind,
                        lower::Issue issue);
  Status post(RankState& rank, LaneQueue& queue, ThreadId thread, lower::Issue issue);
  Result<bool> complete_messages(RankState& rank, size_t lane);
  [[nodiscard]] Status check_ends(const RankState& sender, const Posted& sent,
                                  const RankState& receiver, const Posted& received) const;
  Status complete(RankState& sender, size_t lane, RankState& receiver, size_t at_peer);
  void finish_message(RankState& rank, LaneQueue& queue, ThreadId thread);

  // machine.cc
  [[nodiscard]] ThreadId caller_thread(uint32_t call, int rank) const {
    return kCallers + call * static_cast<uint32_t>(ranks_.size()) + static_cast<uint32_t>(rank);
  }
  void begin_call(RankState& rank, uint32_t call);
  Status end_call(RankState& rank, uint32_t call);
  Status check_barrier(const RankState& rank, uint32_t call) const;
  void retire_finished(RankState& rank);
  void retire(RankState& rank, uint32_t call);
  [[nodiscard]] const Clock* sync_clock(const RankState& rank, uint32_t call,
                                        const lower::Instruction& wait, uint32_t slice) const;
  void signal(RankState& rank, uint32_t call, lower::SyncId sync, const Clock& clock);
  [[nodiscard]] const Clock* turn_clock(const RankState& rank, uint32_t call) const;

  // machine_memory.cc
  [[nodiscard]] uint32_t tag(uint32_t call, uint32_t slice) const {
    return calls_[call].first_tag + slice;
  }
  /// Whether a message travels in slice `k`; if not, it has ended before.
  [[nodiscard]] static bool travels(const RankState& rank, uint32_t call, uint16_t message,
                                    uint32_t k) {
    return k < rank.calls[call].travels[message];
  }
  /// The cells of a region; none if the block has ended before that slice.
  [[nodiscard]] Cells::Range range_of(const RankState& rank, uint32_t call, uint32_t slice,
                                      const lower::Operand& operand) const;
  [[nodiscard]] uint32_t place_of(const RankState& rank, uint32_t call, uint32_t slice,
                                  const lower::Operand& operand) const;
  [[nodiscard]] Cells::Range used_range(const RankState& rank, uint32_t call,
                                        const lower::Operand& operand, uint32_t place,
                                        Cells::Range range) const;
  Status use(RankState& rank, uint32_t call, lower::Issue issue, const Clock& clock, Use use);
  const Use* use_turn(RankState& rank, lower::Memory memory, const Clock& clock, Use as);
  Status use_ring(RankState& rank, uint32_t call, lower::Issue issue, const lower::Operand& operand,
                  bool writes, const Clock& clock, Use use);
  [[nodiscard]] Status check_abort(const RankState& rank, uint32_t call, lower::Issue issue,
                                   const lower::Operand& operand, Cells::Range range) const;
  Status check_itself(RankState& rank, uint32_t call, lower::Issue issue);
  Result<std::vector<Value>> load(RankState& rank, uint32_t call, lower::Issue issue,
                                  const lower::Operand& operand, bool scale);
  /// Decodes the values that arithmetic reads from `operand`, or encodes those that it writes
  /// there.
  void convert(RankState& rank, uint32_t call, lower::Issue issue, const lower::Operand& operand,
               bool to_encoded, std::vector<Value>& values);
  void check_encoded_once(RankState& rank, uint32_t call, lower::Issue issue,
                          const lower::Operand& operand);
  void store(RankState& rank, uint32_t call, uint32_t slice, const lower::Operand& operand,
             const std::vector<Value>& values);
  /// The message whose ring place exec keeps for `message`, in the slot of that slice.
  RingMessage& ring_place(RankState& rank, uint32_t call, uint32_t slice, uint16_t message);
  [[nodiscard]] RingMessage ring_message(const RankState& rank, uint32_t call, uint32_t slice,
                                         uint16_t message) const;
  RingCheck& ring_of(RankState& rank, uint32_t call, uint16_t message);
  std::vector<Value> reduced(RankState& rank, uint32_t call, lower::Issue issue, uint32_t place,
                             const std::vector<std::vector<Value>>& operands);

  // machine_end.cc
  Status check_end(RankState& rank);
  void check_outputs(RankState& rank, uint32_t call);
  Status check_lane_end(const LaneState& lane, int rank) const;
  void compare_outputs(RankState& rank, uint32_t call, size_t place);
  [[nodiscard]] const char* fault_of(const Problem& problem, int rank, uint32_t block, NodeId node);
  NodeId gathered(const Problem& problem, uint32_t block);
  [[nodiscard]] const char* fault_of_sum(const Problem& problem, int rank, NodeId node);
  Status conflict(const RankState& rank, uint32_t call, uint32_t index, const Use& before) const;
  Status wrong(const RankState& rank, uint32_t call, uint32_t index, const char* what) const;
  void note(Status fault) {
    if (fault_.ok()) fault_ = std::move(fault);
  }
  [[nodiscard]] const char* where() const { return options_.in_place ? " in place" : ""; }

  const MachineOptions options_;
  std::vector<std::unique_ptr<Cells>> cells_;  // one per problem
  std::vector<InFlight> calls_;
  uint32_t n_executors_ = 1;
  Expressions expressions_;
  std::vector<RankState> ranks_;
  std::vector<Access> accesses_;  // a member, so that uses allocate no memory
  Status fault_;                  // first wrong value; reported if nothing else is wrong
};

}  // namespace hetccl::verify
