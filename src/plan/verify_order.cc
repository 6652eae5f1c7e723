// The verifier's second part: when things happen. Deadlock is a cycle among the events of all
// ranks, under the most that may make a step wait; a hazard is a conflict that one rank's own
// waits, the least that exec promises, leave unordered.
#include <algorithm>
#include <map>
#include <optional>

#include "plan/schedule.h"
#include "plan/verify_model.h"

namespace hetccl::plan {
namespace {

using Edge = std::pair<uint32_t, uint32_t>;

class EventGraph {
 public:
  EventGraph(const VerifyModel& model, uint32_t depth, uint32_t n_slices)
      : model_(model), depth_(depth), n_slices_(n_slices) {
    for (int rank = 0; rank < model.n_ranks(); ++rank) add_rank(rank);
    for (uint32_t slice = 0; slice < n_slices; ++slice) add_matches(slice);
  }

  /// Kahn's algorithm.
  Result<std::vector<uint32_t>> sorted() const {
    const uint32_t n = drained(n_slices_, 0);
    std::vector<uint32_t> first(n + 1, 0), targets(edges_.size()), waits(n, 0), order;
    for (const Edge& e : edges_) ++first[e.first + 1], ++waits[e.second];
    for (uint32_t v = 0; v < n; ++v) first[v + 1] += first[v];
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (const Edge& e : edges_) targets[next[e.first]++] = e.second;
    order.reserve(n);
    for (uint32_t v = 0; v < n; ++v) {
      if (waits[v] == 0) order.push_back(v);
    }
    for (size_t done = 0; done < order.size(); ++done) {
      for (uint32_t t = first[order[done]]; t < first[order[done] + 1]; ++t) {
        if (--waits[targets[t]] == 0) order.push_back(targets[t]);
      }
    }
    if (order.size() == n) return order;
    const auto stuck = static_cast<uint32_t>(
        std::find_if(waits.begin(), waits.end(), [](uint32_t w) { return w > 0; }) - waits.begin());
    return error(Code::InternalError, "deadlock: %s never completes in slice %u of %u",
                 model_.describe(stuck / 2 % model_.n_steps()).c_str(),
                 stuck / 2 / model_.n_steps(), n_slices_);
  }

 private:
  [[nodiscard]] uint32_t start(uint32_t slice, StepId id) const {
    return 2 * (slice * model_.n_steps() + id);
  }
  [[nodiscard]] uint32_t end(uint32_t slice, StepId id) const { return start(slice, id) + 1; }
  [[nodiscard]] uint32_t hub(uint32_t slice, uint32_t group) const {
    return 2 * n_slices_ * model_.n_steps() +
           slice * static_cast<uint32_t>(model_.groups().size()) + group;
  }
  /// Everything that the rank does in the slice is complete.
  [[nodiscard]] uint32_t drained(uint32_t slice, int rank) const {
    return hub(n_slices_, 0) + slice * static_cast<uint32_t>(model_.n_ranks()) +
           static_cast<uint32_t>(rank);
  }
  void edge(uint32_t from, uint32_t to) { edges_.emplace_back(from, to); }

  void add_rank(int rank) {
    const RankPlan& plan = model_.plan(rank);
    const uint32_t n_slots = slots(plan, depth_, n_slices_);
    // All streams as one queue: of a send it holds the copy out, of a receive the copy in.
    std::optional<uint32_t> queued;                      // what ends the last of it
    std::map<std::pair<int, StepKind>, uint32_t> posts;  // last start per channel and direction
    for_each_issue(plan, depth_, n_slices_, [&](Issue issue) {
      const Step& step = plan.steps[issue.step];
      const uint32_t self = start(issue.slice, model_.id(rank, issue.step));
      edge(self, self + 1);
      for (uint16_t dep : step.deps) edge(end(issue.slice, model_.id(rank, dep)), self);
      // At most for all of the slice whose scratch it takes; LocalOrder has the least.
      edge(self + 1, drained(issue.slice, rank));
      if (issue.slice >= n_slots) edge(drained(issue.slice - n_slots, rank), self);
      if (queued) edge(*queued, step.kind == StepKind::Recv ? self + 1 : self);
      queued = step.kind == StepKind::Send ? self : self + 1;
      if (step.kind != StepKind::Send && step.kind != StepKind::Recv) return;
      const auto [last, is_first] = posts.try_emplace({step.peer, step.kind}, self);
      if (is_first) return;
      edge(last->second, self);
      edge(last->second + 1, self + 1);
      last->second = self;
    });
  }

  void add_matches(uint32_t slice) {
    for (StepId id = 0; id < model_.n_steps(); ++id) {
      const StepKind kind = model_.step(id).kind;
      if (is_ccl(kind)) {
        edge(start(slice, id), hub(slice, model_.match(id)));
        edge(hub(slice, model_.match(id)), end(slice, id));
      } else if (kind == StepKind::Send || kind == StepKind::Recv) {
        edge(start(slice, id), end(slice, model_.match(id)));
      }
    }
  }

  const VerifyModel& model_;
  uint32_t depth_, n_slices_;
  std::vector<Edge> edges_;
};

/// Which steps of one rank are surely complete when another starts: sets as rows of bits.
class LocalOrder {
 public:
  LocalOrder(const RankPlan& plan, int local_rank, uint32_t depth, uint32_t n_slices)
      : n_steps_(plan.steps.size()), n_slices_(n_slices), n_slots_(slots(plan, depth, n_slices)) {
    words_ = (n_steps_ * n_slices + 63) / 64;
    before_start_.assign(n_steps_ * n_slices * words_, 0);
    before_end_ = before_start_;
    const auto waits = scratch_waits(plan, local_rank);
    std::map<std::pair<int, StepKind>, size_t> queues;  // last step of each; peer -1: streams
    for_each_issue(plan, depth, n_slices, [&](Issue issue) {
      const Step& step = plan.steps[issue.step];
      const size_t self = at(issue.slice, issue.step);
      for (uint16_t dep : step.deps)
        include(before_start_, self, before_end_, at(issue.slice, dep));
      if (issue.slice >= n_slots_) {
        for (uint16_t user : waits[issue.step]) {
          include(before_start_, self, before_end_, at(issue.slice - n_slots_, user));
        }
      }
      const bool wire = step.kind == StepKind::Send || step.kind == StepKind::Recv;
      const StepKind queue = wire                ? step.kind
                             : is_ccl(step.kind) ? StepKind::CclReduce
                                                 : StepKind::Reduce;
      const auto [last, is_first] = queues.try_emplace({wire ? step.peer : -1, queue}, self);
      if (!is_first) {
        include(before_start_, self, wire ? before_start_ : before_end_, last->second);
        include(before_end_, self, before_end_, last->second);
        last->second = self;
      }
      include(before_end_, self, before_start_, self);
      before_end_[self * words_ + self / 64] |= uint64_t{1} << (self % 64);
    });
  }

  [[nodiscard]] uint32_t n_slots() const { return n_slots_; }
  [[nodiscard]] size_t at(uint32_t slice, size_t step) const { return slice * n_steps_ + step; }
  [[nodiscard]] bool complete_before(size_t first, size_t second) const {
    return (before_start_[second * words_ + first / 64] >> (first % 64) & 1U) != 0;
  }

 private:
  void include(std::vector<uint64_t>& into, size_t row, const std::vector<uint64_t>& from,
               size_t from_row) {
    for (size_t w = 0; w < words_; ++w) into[row * words_ + w] |= from[from_row * words_ + w];
  }

  size_t n_steps_, words_ = 0;
  uint32_t n_slices_, n_slots_;
  std::vector<uint64_t> before_start_, before_end_;
};

bool overlap(const CellRange& a, const CellRange& b) {
  return a.location == b.location && a.begin < b.end && b.begin < a.end;
}

/// One step's accesses among themselves: a vendor call or kernel orders nothing but its own lanes.
bool conflicts_with_itself(const std::vector<Access>& accesses) {
  for (size_t i = 0; i < accesses.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Access &a = accesses[i], &b = accesses[j];
      if (!(a.write || b.write) || !overlap(a.cells, b.cells)) continue;
      const bool one_lane = a.lane == b.lane && a.write != b.write &&
                            a.cells.begin == b.cells.begin && a.cells.end == b.cells.end;
      if (!one_lane) return true;
    }
  }
  return false;
}

class HazardCheck {
 public:
  HazardCheck(const VerifyModel& model, int rank, uint32_t depth, uint32_t n_slices)
      : model_(model),
        rank_(rank),
        n_slices_(n_slices),
        order_(model.plan(rank), model.topology().local_rank(rank), depth, n_slices) {}

  Status run(bool in_place) {
    struct Use {
      size_t step;
      Access access;
    };
    const RankPlan& plan = model_.plan(rank_);
    std::vector<std::vector<Use>> uses(model_.n_locations(rank_));
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      const std::vector<Access> accesses = model_.accesses(model_.id(rank_, s), in_place);
      if (conflicts_with_itself(accesses)) {
        return error(Code::InternalError, "%s overwrites what it reads%s",
                     model_.describe(model_.id(rank_, s)).c_str(), in_place ? " in place" : "");
      }
      for (const Access& a : accesses) uses[a.cells.location].push_back({s, a});
    }
    const uint32_t scratch = plan.input_blocks + plan.output_blocks;
    for (uint32_t location = 0; location < uses.size(); ++location) {
      for (const Use& a : uses[location]) {
        for (const Use& b : uses[location]) {
          if (!(a.access.write || b.access.write) || !overlap(a.access.cells, b.access.cells)) {
            continue;
          }
          if (a.step < b.step) HETCCL_TRY(ordered_in_slice(a.step, b.step, in_place));
          if (location >= scratch) HETCCL_TRY(ordered_over_slots(a.step, b.step));
        }
      }
    }
    return {};
  }

 private:
  Status ordered_in_slice(size_t a, size_t b, bool in_place) const {
    for (uint32_t k = 0; k < n_slices_; ++k) {
      const size_t x = order_.at(k, a), y = order_.at(k, b);
      if (order_.complete_before(x, y) || order_.complete_before(y, x)) continue;
      return error(Code::InternalError, "nothing orders %s and %s, which share memory%s",
                   model_.describe(model_.id(rank_, a)).c_str(),
                   model_.describe(model_.id(rank_, b)).c_str(), in_place ? " in place" : "");
    }
    return {};
  }

  Status ordered_over_slots(size_t a, size_t b) const {
    for (uint32_t k = order_.n_slots(); k < n_slices_; ++k) {
      if (order_.complete_before(order_.at(k - order_.n_slots(), a), order_.at(k, b))) continue;
      return error(Code::InternalError,
                   "%s may take scratch that %s of an earlier slice still uses",
                   model_.describe(model_.id(rank_, b)).c_str(),
                   model_.describe(model_.id(rank_, a)).c_str());
    }
    return {};
  }

  const VerifyModel& model_;
  int rank_;
  uint32_t n_slices_;
  LocalOrder order_;
};

}  // namespace

Result<std::vector<uint32_t>> check_order(const VerifyModel& model, uint32_t depth,
                                          uint32_t n_slices) {
  HETCCL_ASSIGN(std::vector<uint32_t> order, EventGraph(model, depth, n_slices).sorted());
  for (int rank = 0; rank < model.n_ranks(); ++rank) {
    HazardCheck hazards(model, rank, depth, n_slices);
    HETCCL_TRY(hazards.run(/*in_place=*/false));
    HETCCL_TRY(hazards.run(/*in_place=*/true));
  }
  return order;
}

}  // namespace hetccl::plan
