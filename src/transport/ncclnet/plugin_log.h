// Takes a net plug-in's own lines to hetccl's log. The interface's callback carries no pointer,
// so there is one level for all plug-ins of the process.
#pragma once

#include "base/log.h"
#include "transport/ncclnet/abi.h"

namespace hetccl::transport::ncclnet {

/// Plug-ins write at `log`'s level from here on. Thread-safe.
void set_plugin_log(const Log& log);

/// abi::Logger. Warnings stay warnings; all else shows with HETCCL_DEBUG=info or debug.
// NOLINTBEGIN(google-runtime-int): the interface has these types
[[gnu::format(printf, 5, 6)]] void log_of_plugin(int level, unsigned long subsystems,
                                                 const char* file, int line, const char* format,
                                                 ...);
// NOLINTEND(google-runtime-int)

}  // namespace hetccl::transport::ncclnet
