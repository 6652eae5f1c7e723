// Speaks at a door, over a connection that has proven both ends.
#pragma once

#include "base/cancel.h"
#include "base/clock.h"
#include "bootstrap/frame.h"
#include "bootstrap/loop.h"
#include "net/wire.h"

namespace hetccl::bootstrap {

/// Sends `knock`, a frame, and returns the door's answer: ok, its refusal, or RemoteError where it
/// closes without one. Timeout at `deadline`. `cancel`, which may be null, ends it with its reason.
/// Blocks; not on the control thread.
Status say_at_door(Loop& loop, net::Wire wire, Bytes knock, TimePoint deadline,
                   const Cancel* cancel);

}  // namespace hetccl::bootstrap
