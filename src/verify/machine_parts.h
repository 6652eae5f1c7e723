// The machine's parts. See machine.h.
#pragma once

#include <vector>

#include "verify/machine.h"
#include "verify/rank_state.h"

namespace hetccl::verify {

/// Threads that stand for the ranks' callers, in what a barrier tells of them.
inline constexpr ThreadId kCallers = 1U << 30U;
inline constexpr lower::QueueId kUser = lower::stream_queue(lower::QueueKind::User);

enum class Step : uint8_t { Blocked, Done };

class Machine {
 public:
  Machine(const Problem& problem, const Codes& codes, const Matching& matching,
          const MachineOptions& options)
      : problem_(problem),
        codes_(codes),
        matching_(matching),
        options_(options),
        cells_(problem, codes),
        expressions_(problem.n_ranks()),
        ranks_(codes.size()),
        arrived_(size_t{options.calls} * problem.n_slices * matching.groups.size()),
        is_barrier_(problem.spec.collective == Collective::Barrier) {}

  Status run();

 private:
  /// A call of a cluster's library, of which `place` tells where it evaluates.
  struct LibraryCall {
    const Matching::Group* group;
    uint32_t call, slice, place;
  };

  // machine_open.cc
  Status open(int number);
  Status check_scratch(const RankState& rank) const;
  Status join_lanes(RankState& rank);
  void add_call(RankState& rank, uint32_t call);
  void map_caller(RankState& rank, CallState& state);
  void map_buffers(RankState& rank, CallState& state, uint32_t call);

  // machine_streams.cc
  Result<bool> advance(RankState& rank);
  Result<Step> run_next(RankState& rank);
  Result<Step> run_stream(RankState& rank, const Enqueued& at);
  void finish_instruction(RankState& rank, uint32_t call, const lower::Instruction& one,
                          ThreadId thread);
  Result<Step> call_library(RankState& rank, const Enqueued& at);
  Status run_library(uint32_t group, uint32_t call, uint32_t slice);
  RankState& member(const LibraryCall& at, size_t local);
  const lower::Instruction& code_of(const LibraryCall& at, size_t local);
  Result<std::vector<Value>> load_of(const LibraryCall& at, size_t local,
                                     const lower::Operand& operand);
  Status enter_library(const LibraryCall& at);
  Status all_reduce(const LibraryCall& at);
  uint32_t slices_of(const LibraryCall& at);
  Status exchange(const LibraryCall& at);
  Status exchange_slice(const LibraryCall& at);
  Result<std::vector<Value>> result_of_shard(const LibraryCall& at, size_t shard);
  Status compute(RankState& rank, const Enqueued& at);
  Result<Step> reserve(RankState& rank, const Enqueued& at);
  Result<bool> run_lane(RankState& rank, size_t lane, LaneQueue& queue, lower::QueueId id);
  Result<Step> start(RankState& rank, size_t lane, LaneQueue& queue, lower::QueueId id,
                     lower::Issue issue);
  Status post(RankState& rank, LaneQueue& queue, lower::QueueId id, lower::Issue issue);
  Result<bool> complete_messages(RankState& rank, size_t lane);
  Status complete(RankState& sender, size_t lane, RankState& receiver, size_t at_peer);
  void finish_message(RankState& rank, LaneQueue& queue, lower::QueueId id);
  void begin_call(RankState& rank, uint32_t call);
  Status end_call(RankState& rank, uint32_t call);
  void try_to_retire(RankState& rank);

  // machine.cc
  [[nodiscard]] const Clock* sync_clock(const RankState& rank, uint32_t call,
                                        const lower::Instruction& wait, uint32_t slice) const;
  void signal(RankState& rank, uint32_t call, lower::SyncId sync, const Clock& clock);
  [[nodiscard]] const Clock* turn_clock(const RankState& rank, uint32_t call) const;

  // machine_memory.cc
  [[nodiscard]] uint32_t tag(uint32_t call, uint32_t slice) const {
    return call * problem_.n_slices + slice;
  }
  [[nodiscard]] uint32_t place_of(const RankState& rank, uint32_t call, uint32_t slice,
                                  const lower::Operand& operand) const;
  [[nodiscard]] Cells::Range used_range(const RankState& rank, const lower::Operand& operand,
                                        uint32_t place) const;
  Status use(RankState& rank, uint32_t call, lower::Issue issue, const Clock& clock, Use use);
  Status use_ring(RankState& rank, uint32_t call, lower::Issue issue, const lower::Operand& operand,
                  bool writes, const Clock& clock, Use use);
  [[nodiscard]] Status check_abort(const RankState& rank, uint32_t call, lower::Issue issue,
                                   const lower::Operand& operand, Cells::Range range) const;
  Status check_itself(RankState& rank, uint32_t call, lower::Issue issue);
  Result<std::vector<Value>> load(RankState& rank, uint32_t call, lower::Issue issue,
                                  const lower::Operand& operand, bool scale);
  void store(RankState& rank, uint32_t call, uint32_t slice, const lower::Operand& operand,
             const std::vector<Value>& values);
  /// Whose place exec has for the message, in the slot of that slice.
  RingMessage& ring_place(RankState& rank, uint32_t call, uint32_t slice, uint16_t message);
  [[nodiscard]] RingMessage ring_message(const RankState& rank, uint32_t call, uint32_t slice,
                                         uint16_t message) const;
  RingCheck& ring_of(RankState& rank, uint16_t message);
  std::vector<Value> reduced(RankState& rank, lower::Issue issue, uint32_t place,
                             const std::vector<std::vector<Value>>& operands, uint32_t slice);
  [[nodiscard]] size_t bytes_of(const plan::Region& region, uint32_t slice) const;

  // machine_end.cc
  Status check_end(RankState& rank);
  void check_outputs(RankState& rank, uint32_t call);
  [[nodiscard]] const char* fault_of(int rank, uint32_t block, NodeId node);
  Status conflict(const RankState& rank, uint32_t index, const Use& before) const;
  Status wrong(const RankState& rank, uint32_t index, const char* what) const;
  void note(Status fault) {
    if (fault_.ok()) fault_ = std::move(fault);
  }
  [[nodiscard]] const char* where() const { return options_.in_place ? " in place" : ""; }

  const Problem& problem_;
  const Codes& codes_;
  const Matching& matching_;
  const MachineOptions options_;
  Cells cells_;
  Expressions expressions_;
  std::vector<RankState> ranks_;
  std::vector<uint32_t> arrived_;  // by call, slice and group
  const bool is_barrier_;
  Status fault_;  // of values, the first; told unless something else is wrong
};

}  // namespace hetccl::verify
