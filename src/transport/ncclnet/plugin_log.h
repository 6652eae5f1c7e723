// Passes the log lines of net plug-ins to hetccl's log. The interface's callback carries no
// context, so all plug-ins of a process share one level.
#pragma once

#include "base/log.h"
#include "transport/ncclnet/abi.h"

namespace hetccl::transport::ncclnet {

/// Makes plug-ins write at the level of `log` from now on. Thread-safe.
void set_plugin_log(const Log& log);

/// The abi::Logger for plug-ins. Warnings stay warnings; all other lines show with
/// HETCCL_DEBUG=info or debug.
// NOLINTBEGIN(google-runtime-int): the interface has these types
[[gnu::format(printf, 5, 6)]] void log_of_plugin(int level, unsigned long subsystems,
                                                 const char* file, int line, const char* format,
                                                 ...);
// NOLINTEND(google-runtime-int)

}  // namespace hetccl::transport::ncclnet
