// Chooses among algorithms, and how calls are cut into slices: from values that all ranks agree on,
// so that all choose alike.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "plan/algorithms.h"
#include "tune/cost_model.h"
#include "tune/space.h"

namespace hetccl::tune {

/// An algorithm that could be taken, and what it is expected to cost between clusters.
struct Candidate {
  std::string_view algorithm;
  int hops = 0;
  plan::Choice choice;
  double seconds = 0;
};

/// What a rank has that can be shared out, and what its user has fixed.
struct Limits {
  uint64_t slice_bytes = 0;   ///< 0: to be searched
  uint32_t depth = 0;         ///< 0: to be searched
  uint16_t tcp_streams = 0;   ///< of each TCP channel
  uint16_t gpu_blocks = 0;    ///< of a kernel by default; 0: no GPU adds
  uint16_t host_threads = 0;  ///< that a host has for adding; 0: no host adds
  Tactics tactics = {};       ///< of the vendors' libraries, where all can be told
  bool keep_bits = false;     ///< nothing may change the order of sums
};

/// The first call of a collective (with a root, of the root's cluster) makes plans of every row
/// that applies and keeps what they ask of the links. Later calls cost a look-up and a few
/// additions, and allocate nothing. Not thread-safe: the communicator calls it under its launch
/// mutex.
class Chooser {
 public:
  /// As CostModel. The topology and the table outlive the chooser.
  Chooser(const topology::Topology& topology, const std::vector<topology::Measurement>& measured,
          bool deterministic = false, plan::Algorithms table = plan::algorithms())
      : topology_(topology), table_(table), model_(topology, measured, deterministic) {}

  /// The slowest way between two clusters, as measured or guessed. Bandwidth is 0 where there is
  /// one cluster.
  [[nodiscard]] const LinkCost& slowest_link() const { return model_.slowest(); }
  /// How a call with blocks of `count` elements is to go. Ignores `spec.algorithm`; the root is a
  /// rank. Where no row applies, the candidate names no algorithm.
  [[nodiscard]] Candidate choose(const plan::Spec& spec, uint64_t count, DataType type);
  /// Every algorithm that applies, in the table's order.
  [[nodiscard]] std::vector<Candidate> candidates(const plan::Spec& spec, uint64_t count,
                                                  DataType type);
  /// The settings among which the best one is searched for calls like this. Its start is what
  /// `choose` says. One setting where nothing can be tuned, none where no row applies.
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
