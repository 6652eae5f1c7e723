// Lowering: from one rank's plan to the program that runs. Pure, and the same on every rank.
#pragma once

#include "lower/code.h"
#include "lower/geometry.h"

namespace hetccl::lower {

/// InternalError when the plan breaks a rule of its own IR.
Result<Code> lower(const plan::RankPlan& plan, const Target& target, const Geometry& geometry);

}  // namespace hetccl::lower
