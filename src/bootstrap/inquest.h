// Explains why a collective does not complete, from all ranks' answers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace hetccl::bootstrap {

/// Returns "rank 3", "ranks 2, 5"; if there are more than 16, "ranks 0, 1, ... and 84 more".
std::string rank_list(const std::vector<int32_t>& ranks);

/// One stall and the answers to it. Pure.
class Inquest {
 public:
  Inquest(Stall stall, int32_t n_ranks);
  /// Adds a rank's answer. Only its first counts.
  void add_answer(int32_t rank, Position position);
  void add_departure(int32_t rank, uint64_t called);
  /// Returns whether every rank has answered or left.
  [[nodiscard]] bool complete() const;
  /// Returns the cause. It names, in this order, ranks that have left, that are missing, that
  /// called something else, that did not answer. `rank` is the first of them. If ranks disagree, it
  /// only names those that called something else than most.
  [[nodiscard]] Failure conclusion() const;

 private:
  struct Answer {
    bool left = false;
    Position position;
  };
  [[nodiscard]] bool called(const Answer& answer) const;
  [[nodiscard]] std::vector<int32_t> ranks_where(bool (Inquest::*holds)(const Answer&) const) const;
  [[nodiscard]] bool has_left(const Answer& answer) const;
  [[nodiscard]] bool is_missing(const Answer& answer) const;
  [[nodiscard]] bool called_another(const Answer& answer) const;
  [[nodiscard]] bool has_completed(const Answer& answer) const;
  [[nodiscard]] std::vector<int32_t> silent() const;
  [[nodiscard]] std::string progress_of(const std::vector<int32_t>& ranks) const;
  [[nodiscard]] std::string blameless() const;
  [[nodiscard]] Failure disagreement() const;

  const Stall stall_;
  const int32_t n_ranks_;
  std::map<int32_t, Answer> answers_;
};

}  // namespace hetccl::bootstrap
