// A plug-in was used as its interface asks, and has nothing left.
#pragma once

#include <doctest/doctest.h>

#include "fake/net_plugin.h"

namespace hetccl::fake {

/// To be called once nothing uses the plug-in any more.
inline void check_clean(const NetPlugin& plugin) {
  CHECK(plugin.violations == 0);
  CHECK(plugin.interrupted == 0);
  CHECK(plugin.comms == 0);
  CHECK(plugin.regions == 0);
  CHECK(plugin.requests == 0);
}

}  // namespace hetccl::fake
