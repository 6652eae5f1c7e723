// The tactics of a vendor's library, as a space to search.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/tactic.h"
#include "plan/plan.h"
#include "tune/space.h"

namespace hetccl::tune {

/// Returns calls with one algorithm and protocol of the library (Tactic's numbers), `bytes` in
/// total, over its numbers of channels if it lets them be chosen.
[[nodiscard]] Subspace library_subspace(int algorithm, int protocol, uint64_t bytes);
/// Returns the numbers of channels to try.
[[nodiscard]] Axis channels_axis();
[[nodiscard]] uint16_t usual_channels(uint64_t bytes);

/// Returns InvalidArgument if the libraries cannot run the call with `tactic`. `alone`: the call is
/// a single library call; otherwise only channels can be set for its parts.
[[nodiscard]] Status check(const Tactic& tactic, Collective collective, bool alone,
                           const Tactics& tactics);

/// Returns the space of a collective that is one library call: the library's own choice, and each
/// algorithm and protocol pair. `bytes`: of the call. `keep_bits`: only tactics that keep the order
/// of sums.
[[nodiscard]] Space library_space(Collective collective, uint64_t bytes, const Tactics& tactics,
                                  bool keep_bits);

}  // namespace hetccl::tune
