// Lowering: turns one rank's plan into the program that runs. Pure: every rank gets the same
// result.
#pragma once

#include "lower/code.h"
#include "lower/geometry.h"

namespace hetccl::lower {

/// InternalError if the plan breaks a rule of its IR.
Result<Code> lower(const plan::RankPlan& plan, const Target& target, const Geometry& geometry);

}  // namespace hetccl::lower
