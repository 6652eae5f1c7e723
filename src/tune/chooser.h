// Chooses among algorithms, and how calls are cut into slices. Uses only values that all ranks
// agree on, so that all choose alike.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "plan/algorithms.h"
#include "tune/cost_model.h"
#include "tune/space.h"

namespace hetccl::tune {

/// An algorithm that could be used, and its expected cost between clusters.
struct Candidate {
  std::string_view algorithm;
  int hops = 0;
  plan::Choice choice;
  double seconds = 0;
};

/// The resources that a rank can distribute, and what its user has fixed.
struct Limits {
  uint64_t slice_bytes = 0;   ///< 0: searched
  uint32_t depth = 0;         ///< 0: searched
  uint16_t tcp_streams = 0;   ///< per TCP channel
  uint16_t gpu_blocks = 0;    ///< of a kernel by default; 0: no GPU adds
  uint16_t host_threads = 0;  ///< a host's threads that add; 0: no host adds
  Tactics tactics = {};       ///< those that all vendors' libraries accept
  bool keep_bits = false;     ///< nothing may change the order of sums
};

/// Estimates the cost of each algorithm. The first call of a collective (with a root: per cluster
/// of the root) makes the plans of every applicable row and keeps their load on the links. Later
/// calls take a look-up and a few additions, and allocate nothing. Not thread-safe: the
/// communicator calls it under its launch mutex.
class Chooser {
 public:
  /// Arguments as in CostModel. The topology and the table must outlive the chooser.
  Chooser(const topology::Topology& topology, const std::vector<topology::Measurement>& measured,
          bool deterministic = false, plan::Algorithms table = plan::algorithms())
      : topology_(topology), table_(table), model_(topology, measured, deterministic) {}

  /// Returns the slowest link between two clusters, as measured or guessed. Bandwidth is 0 if there
  /// is one cluster.
  [[nodiscard]] const LinkCost& slowest_link() const { return model_.slowest(); }
  /// Chooses how a call with blocks of `count` elements runs. Ignores `spec.algorithm`; the root
  /// must be a rank. If no row applies, the candidate names no algorithm.
  [[nodiscard]] Candidate choose(const plan::Spec& spec, uint64_t count, DataType type);
  /// Returns every applicable algorithm, in the table's order.
  [[nodiscard]] std::vector<Candidate> candidates(const plan::Spec& spec, uint64_t count,
                                                  DataType type);
  /// Returns the settings to search for such calls. The first is the choice of `choose`. One
  /// setting: nothing can be tuned; none: no row applies.
  [[nodiscard]] Space space(const plan::Spec& spec, uint64_t count, DataType type,
                            const Limits& limits);

 private:
  struct Option {
    std::string_view algorithm;
    Load load;
  };
  [[nodiscard]] const std::vector<Option>& find_options(const plan::Spec& spec);
  [[nodiscard]] uint64_t slices(const Load& load, uint64_t bytes) const;
  [[nodiscard]] uint64_t fixed_slice() const;
  [[nodiscard]] Candidate candidate(const Option& option, uint64_t bytes) const;
  [[nodiscard]] uint64_t most_in_window() const;
  [[nodiscard]] uint64_t most_slice(const Load& load) const;
  [[nodiscard]] Subspace subspace(const Option& option, uint64_t bytes, const Limits& limits) const;

  const topology::Topology& topology_;
  plan::Algorithms table_;
  CostModel model_;
  std::map<plan::Spec, std::vector<Option>> options_;
};

}  // namespace hetccl::tune
