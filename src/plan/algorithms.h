// The algorithms: one row each, in one table. To add an algorithm, write its planner in a file of
// its own, declare the planner in planners.h, and add a row. Then the chooser weighs it, `hetccl
// plan --explain` lists it, and the property tests verify it.
#pragma once

#include <concepts>
#include <span>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace hetccl::plan {

class Builder;

/// A set of collectives.
struct Collectives {
  uint32_t bits = 0;
  explicit constexpr Collectives(std::same_as<Collective> auto... of)
      : bits(((1U << static_cast<unsigned>(of)) | ...)) {}
  [[nodiscard]] constexpr bool contain(Collective one) const {
    return (bits >> static_cast<unsigned>(one) & 1U) != 0;
  }
};

/// Id of the row that is one call of the vendor's library, which is not cut into slices.
inline constexpr std::string_view kVendorCall = "vendor";

/// An algorithm for a set of collectives.
struct Algorithm {
  std::string_view id;  ///< unique among the rows of a collective, in static storage
  Collectives collectives;
  /// Whether init makes the algorithm's channels. If not, the first call makes them, because each
  /// root, or each rank, needs other channels.
  bool connects_at_init = true;
  /// Whether it can plan the call. The answer is the same on all ranks, and for any root and
  /// reduction.
  bool (*applies)(const topology::Topology& topology, const Spec& spec) = nullptr;
  RankPlan (*build)(Builder builder) = nullptr;
  bool encodes = false;  ///< can encode the data that crosses between clusters
};

/// The rows of one table. The first row that applies is the default.
using Algorithms = std::span<const Algorithm>;

/// All rows.
[[nodiscard]] Algorithms algorithms();

/// The rows that can plan `spec`, in the table's order. Ignores the row that `spec` names.
[[nodiscard]] std::vector<const Algorithm*> find_algorithms(const Spec& spec,
                                                            const topology::Topology& topology,
                                                            Algorithms table = algorithms());

/// Returns the row that `spec` names, or the default if it names none. InvalidArgument, with the
/// rows that apply, if the named row does not exist or does not apply.
Result<const Algorithm*> find_algorithm(const Spec& spec, const topology::Topology& topology,
                                        Algorithms table = algorithms());

}  // namespace hetccl::plan
