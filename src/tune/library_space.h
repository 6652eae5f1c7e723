// What a vendor's library can be asked for, as a space to search.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/tactic.h"
#include "plan/plan.h"
#include "tune/space.h"

namespace hetccl::tune {

/// Calls of one algorithm and protocol of the library's (Tactic's numbers), with `bytes` in all,
/// and its channels where it lets them be chosen.
[[nodiscard]] Subspace library_subspace(int algorithm, int protocol, uint64_t bytes);
/// The numbers of channels to try, and where to start.
[[nodiscard]] Axis channels_axis();
[[nodiscard]] uint16_t usual_channels(uint64_t bytes);

/// InvalidArgument where the libraries cannot run such a call so. `alone`: one call of the
/// library's is all of it; else its parts of the call take channels only.
[[nodiscard]] Status check(const Tactic& tactic, Collective collective, bool alone,
                           const Tactics& tactics);

/// A collective that is one call of the library's: its own choice, and each pair that it has.
/// `bytes`: of the call. `keep_bits`: nothing may change the order of sums, and all else is left.
[[nodiscard]] Space library_space(Collective collective, uint64_t bytes, const Tactics& tactics,
                                  bool keep_bits);

}  // namespace hetccl::tune
