// Converts a caller's hetcclConfig_t to the options of a communicator.
#pragma once

#include "base/status.h"
#include "comm/context.h"
#include "hetccl/hetccl.h"

namespace hetccl::capi {

/// `given` may come from an older or newer release. InvalidArgument names the field.
Result<comm::CommunicatorOptions> options_of(const hetcclConfig_t& given);

}  // namespace hetccl::capi
