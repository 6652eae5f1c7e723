// A plan made ready to run: for every step, which queue runs it, what it waits for and who waits
// for it. Computed once per plan; launching a collective only reads it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "plan/plan.h"

namespace hetccl::exec {

/// Where a step runs. Each queue starts its steps in the static order. The first two are streams of
/// the executor, or the user's for a small call.
enum class Queue : uint8_t {
  Ccl,   ///< calls of the cluster's vendor communicator
  Work,  ///< reductions and copies
  Send,  ///< the channel to a peer
  Recv,  ///< the channel from a peer
};

/// A step that must be complete before another may start.
struct Wait {
  uint16_t step = 0;
  bool by_flag = false;  ///< through its flag; else through its event (both are device work)
};

struct StepInfo {
  Queue queue{};
  std::vector<Wait> deps;      ///< complete in the same slice
  std::vector<Wait> recycled;  ///< complete in the slice that used the same scratch slot before
  bool writes_flag = false;    ///< somebody waits for this step's flag
  bool records_event = false;  ///< a step of the other stream waits for it
  bool needs_start = false;    ///< a wire step with no deps: waits for the user's stream itself
  bool joined = false;         ///< a wire step for which only the user's stream waits, if anyone
  uint16_t lane = 0;           ///< Send, Recv: index into `peers`
  uint16_t message = 0;        ///< Send, Recv: index among all of these
  /// Recv: the device's own arithmetic and copies alone read what came, whole, or one broadcast
  /// does; so they may read it where it arrived.
  bool read_alone = false;
  /// Recv: a broadcast does.
  bool read_by_library = false;
  /// Recv: the one step that waits for it, where it is `read_alone` by that; else -1.
  int reader = -1;
  /// Reduce, Copy: for each source the Recv of which it is the whole message, so read, or -1;
  /// CclBroadcast: the same for each shard; empty where there is none.
  std::vector<int> arrivals;
  /// Send: the one step that makes its message, whole, and for it alone: it may do so where the
  /// message leaves from; else -1.
  int maker = -1;
  /// The Sends whose `maker` this is, ascending.
  std::vector<uint16_t> makes;
  /// CclReduce: for each shard the one of those that sends its result, or -1. Reduce, Copy: the
  /// same of the one result. Empty where there is none.
  std::vector<int> departures;
};

struct Program {
  plan::RankPlan plan;
  std::vector<StepInfo> steps;  ///< parallel to plan.steps
  std::vector<int> peers;       ///< ranks with whom messages are exchanged, ascending
  size_t n_messages = 0;        ///< Send and Recv steps
  bool uses_identity = false;   ///< some region is of Buffer::Identity
  size_t n_reduces = 0;         ///< Reduce steps
  size_t most_sources = 0;      ///< of one of them

  /// The vendor's own call, whole, goes straight onto the user's stream. (A rank may have one step
  /// in a plan over several clusters, too: there it is cut as the others' steps are.)
  [[nodiscard]] bool is_direct() const {
    return steps.size() == 1 && steps[0].queue == Queue::Ccl && !plan.sliced;
  }

  /// InternalError when the plan breaks a rule of its own IR.
  static Result<Program> compile(plan::RankPlan plan);
};

}  // namespace hetccl::exec
