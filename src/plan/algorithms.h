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

/// The row of which a collective is one call of the vendor's library: in no slices.
inline constexpr std::string_view kVendorCall = "vendor";

/// One way to do a collective.
struct Algorithm {
  std::string_view id;  ///< unique among the rows of a collective, in static storage
  Collectives collectives;
  /// Whether init makes its channels. Otherwise the first call makes them, since each root, or each
  /// rank, needs channels of its own.
  bool connects_at_init = true;
  /// Whether it can plan the call: the same answer on all ranks, for any root and reduction.
  bool (*applies)(const topology::Topology& topology, const Spec& spec) = nullptr;
  RankPlan (*build)(Builder builder) = nullptr;
  bool encodes = false;  ///< what crosses between clusters, where the call asks for it
};

/// The rows of one table. The first row that applies is the default.
using Algorithms = std::span<const Algorithm>;

/// All of them.
[[nodiscard]] Algorithms algorithms();

/// The rows that can plan `spec`, in the table's order. The row that `spec` names does not matter.
[[nodiscard]] std::vector<const Algorithm*> find_algorithms(const Spec& spec,
                                                            const topology::Topology& topology,
                                                            Algorithms table = algorithms());

/// The row that `spec` names, or the default where it names none. InvalidArgument, with the rows
/// that apply, where that row does not apply or does not exist.
Result<const Algorithm*> find_algorithm(const Spec& spec, const topology::Topology& topology,
                                        Algorithms table = algorithms());

}  // namespace hetccl::plan
