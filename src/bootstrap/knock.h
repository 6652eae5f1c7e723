// Knocks at a door, over a connection on which both ends are proven.
#pragma once

#include "base/cancel.h"
#include "base/clock.h"
#include "bootstrap/frame.h"
#include "bootstrap/loop.h"
#include "net/wire.h"

namespace hetccl::bootstrap {

/// Sends `knock`, a frame, and returns the door's answer: ok, its refusal, or RemoteError if it
/// closes without one. Returns Timeout at `deadline`. `cancel`, which may be null, ends it with its
/// reason. Blocks; must not run on the control thread.
Status send_knock(Loop& loop, net::Wire wire, Bytes knock, TimePoint deadline,
                  const Cancel* cancel);

}  // namespace hetccl::bootstrap
