// The verifier's last part: what is computed. Timing was proven not to matter, so one execution of
// one slice, in one possible order, stands for all.
#include <algorithm>

#include "plan/call.h"
#include "plan/expression.h"
#include "plan/verify_model.h"

namespace hetccl::plan {
namespace {

class Execution {
 public:
  Execution(const VerifyModel& model, bool in_place)
      : model_(model), in_place_(in_place), expressions_(model.n_ranks()), wire_(model.n_steps()) {
    for (int rank = 0; rank < model.n_ranks(); ++rank) {
      memory_.emplace_back(size_t{model.n_locations(rank)} * model.n_cells(),
                           Expressions::kUndefined);
      if (!sends(model.spec().collective, model.spec().root, rank)) continue;
      for (uint32_t block = 0; block < model.plan(rank).input_blocks; ++block) {
        const NodeId node = expressions_.input(rank, block);
        for (NodeId& cell : view(rank, {Buffer::Input, block})) cell = node;
      }
    }
  }

  Status run(std::span<const uint32_t> order) {
    const uint32_t n_step_events = 2 * model_.n_steps();
    for (uint32_t event : order) {
      if (event >= n_step_events + model_.groups().size()) continue;
      if (event >= n_step_events) {
        HETCCL_TRY(call(event - n_step_events));
      } else if (event % 2 == 0) {
        HETCCL_TRY(start(event / 2));
      } else {
        HETCCL_TRY(complete(event / 2));
      }
    }
    return check_outputs();
  }

 private:
  [[nodiscard]] std::span<NodeId> view(int rank, const Region& region) {
    const CellRange range = model_.cells(rank, region, in_place_);
    std::span<NodeId> memory = memory_[static_cast<size_t>(rank)];
    return memory.subspan(size_t{range.location} * model_.n_cells() + range.begin,
                          range.end - range.begin);
  }

  Status undefined(StepId id) const {
    return error(Code::InternalError, "%s reads memory that nobody has written%s",
                 model_.describe(id).c_str(), in_place_ ? " in place" : "");
  }

  /// Reads what is there, which must have been written.
  Result<std::vector<NodeId>> read(StepId id, const Region& region) {
    const std::span<NodeId> cells = view(model_.rank_of(id), region);
    if (std::find(cells.begin(), cells.end(), Expressions::kUndefined) != cells.end()) {
      return undefined(id);
    }
    return std::vector<NodeId>(cells.begin(), cells.end());
  }

  /// The same, times the rank's factor where the step says so.
  Result<std::vector<NodeId>> read_operand(StepId id, const Region& region) {
    HETCCL_ASSIGN(std::vector<NodeId> cells, read(id, region));
    if (!model_.step(id).scale) return cells;
    for (NodeId& cell : cells) cell = expressions_.scaled(model_.rank_of(id), cell);
    return cells;
  }

  void write(StepId id, const Region& region, const std::vector<NodeId>& values) {
    std::copy(values.begin(), values.end(), view(model_.rank_of(id), region).begin());
  }

  /// `operands[i]` is the i-th source's cells.
  Result<std::vector<NodeId>> reduced(StepId id, uint32_t place,
                                      const std::vector<std::vector<NodeId>>& operands) {
    std::vector<NodeId> result(operands[0].size()), column(operands.size()), last;
    for (size_t cell = 0; cell < result.size(); ++cell) {
      for (size_t i = 0; i < operands.size(); ++i) column[i] = operands[i][cell];
      // Neighbouring cells mostly hold the same.
      if (column == last) {
        result[cell] = result[cell - 1];
        continue;
      }
      result[cell] = expressions_.reduce(place, model_.step(id).average, column);
      last = column;
    }
    if (!expressions_.fault().empty()) {
      return error(Code::InternalError, "%s %s%s", model_.describe(id).c_str(),
                   expressions_.fault().c_str(), in_place_ ? " in place" : "");
    }
    return result;
  }

  Status start(StepId id) {
    const Step& step = model_.step(id);
    if (step.kind == StepKind::Send) {
      HETCCL_ASSIGN(wire_[id], read(id, step.srcs[0]));
    }
    return {};
  }

  Status complete(StepId id) {
    const Step& step = model_.step(id);
    if (step.kind == StepKind::Recv) {
      write(id, step.dst, wire_[model_.match(id)]);
    } else if (step.kind == StepKind::Reduce || step.kind == StepKind::Copy) {
      std::vector<std::vector<NodeId>> operands;
      for (const Region& src : step.srcs) {
        HETCCL_ASSIGN(operands.emplace_back(), read_operand(id, src));
      }
      HETCCL_ASSIGN(const std::vector<NodeId> values, reduced(id, 0, operands));
      write(id, step.dst, values);
    }
    return {};
  }

  /// A vendor call does its work: reads of all shards, then writes.
  Status call(uint32_t index) {
    const CclGroup& group = model_.groups()[index];
    const Step& first = model_.step(group.members[0]);
    if (first.kind == StepKind::CclBarrier) return {};
    if (first.kind == StepKind::CclAllReduce) return call_all_reduce(group, index + 1);
    std::vector<std::vector<NodeId>> results;
    for (size_t s = 0; s < first.shards.size(); ++s) {
      const StepId root = group.members[static_cast<size_t>(first.shards[s].root)];
      if (first.kind == StepKind::CclBroadcast) {
        HETCCL_ASSIGN(results.emplace_back(), read(root, model_.step(root).shards[s].send));
        continue;
      }
      std::vector<std::vector<NodeId>> operands;
      for (StepId member : group.members) {
        const Region& part = model_.step(member).shards[s].send;
        if (part.buffer == Buffer::Identity) continue;
        HETCCL_ASSIGN(operands.emplace_back(), read_operand(member, part));
      }
      if (operands.empty()) {
        return error(Code::InternalError, "%s adds up nothing", model_.describe(root).c_str());
      }
      HETCCL_ASSIGN(results.emplace_back(), reduced(root, index + 1, operands));
    }
    for (StepId member : group.members) {
      const Step& step = model_.step(member);
      const int local = model_.topology().local_rank(model_.rank_of(member));
      for (size_t s = 0; s < step.shards.size(); ++s) {
        if (!writes_recv(step.kind, step.shards[s], local)) continue;
        write(member, step.shards[s].recv, results[s]);
      }
    }
    return {};
  }

  Status call_all_reduce(const CclGroup& group, uint32_t place) {
    std::vector<std::vector<NodeId>> operands;
    for (StepId member : group.members) {
      HETCCL_ASSIGN(operands.emplace_back(), read_operand(member, model_.step(member).srcs[0]));
    }
    HETCCL_ASSIGN(const std::vector<NodeId> values, reduced(group.members[0], place, operands));
    for (StepId member : group.members) write(member, model_.step(member).dst, values);
    return {};
  }

  /// What is wrong with `node` in block `block` of `rank`'s output; null when nothing is.
  [[nodiscard]] const char* fault_of(int rank, uint32_t block, NodeId node) {
    const Spec& spec = model_.spec();
    if (node == Expressions::kUndefined) return "was never written";
    if (spec.collective == Collective::AllGather) {
      return node == expressions_.input(static_cast<int>(block), 0) ? nullptr
                                                                    : "is not that rank's input";
    }
    if (spec.collective == Collective::Gather || spec.collective == Collective::AllToAll) {
      const bool one = spec.collective == Collective::Gather;
      const NodeId wanted =
          expressions_.input(static_cast<int>(block), one ? 0 : static_cast<uint32_t>(rank));
      return node == wanted ? nullptr : "is not what that rank has for it";
    }
    if (spec.collective == Collective::Scatter) {
      const NodeId wanted = expressions_.input(spec.root, static_cast<uint32_t>(rank));
      return node == wanted ? nullptr : "is not what the root has for it";
    }
    if (spec.collective == Collective::Broadcast) {
      return node == expressions_.input(spec.root, 0) ? nullptr : "is not the root's input";
    }
    const bool scatters = spec.collective == Collective::ReduceScatter;
    if (!expressions_.is_complete(node, scatters ? static_cast<uint32_t>(rank) : 0)) {
      return "lacks a rank's contribution";
    }
    // One rank's average is its input.
    if (model_.n_ranks() > 1 && expressions_.is_average(node) != spec.average) {
      return spec.average ? "was not averaged" : "was averaged";
    }
    if (expressions_.is_scaled(node) != spec.scale) {
      return spec.scale ? "was not multiplied by the ranks' factors"
                        : "was multiplied by the ranks' factors";
    }
    return nullptr;
  }

  Status check_outputs() {
    for (int rank = 0; rank < model_.n_ranks(); ++rank) {
      if (!receives(model_.spec().collective, model_.spec().root, rank)) continue;
      for (uint32_t block = 0; block < model_.plan(rank).output_blocks; ++block) {
        const std::span<NodeId> cells = view(rank, {Buffer::Output, block});
        for (size_t cell = 0; cell < cells.size(); ++cell) {
          if (const char* fault = fault_of(rank, block, cells[cell])) {
            return error(Code::InternalError, "rank %d, output block %u, cell %zu of %zu %s%s",
                         rank, block, cell, cells.size(), fault, in_place_ ? " in place" : "");
          }
        }
        const std::span<NodeId> of_rank_0 = view(0, {Buffer::Output, block});
        if (model_.spec().collective == Collective::AllReduce &&
            !std::equal(cells.begin(), cells.end(), of_rank_0.begin())) {
          return error(Code::InternalError,
                       "ranks 0 and %d evaluate different expressions: their bits may differ",
                       rank);
        }
      }
    }
    return {};
  }

  const VerifyModel& model_;
  bool in_place_;
  Expressions expressions_;
  std::vector<std::vector<NodeId>> memory_;  // per rank: location by location, cell by cell
  std::vector<std::vector<NodeId>> wire_;    // per Send
};

}  // namespace

Status check_values(const VerifyModel& model, std::span<const uint32_t> order, bool in_place) {
  return Execution(model, in_place).run(order);
}

}  // namespace hetccl::plan
