// The `host` library: collectives of processes or threads of one host through shared memory.
// Streams are `TaskQueue*`; whoever polls the queue moves the data.
#pragma once

#include <memory>

#include "ccl/ccl.h"

namespace hetccl::ccl {

/// `init` of the first rank belongs on the Library that made the id (elsewhere it works too, but
/// the segment's descriptor then stays open as long as that Library). Thread-safe.
std::unique_ptr<Library> make_host_library();

}  // namespace hetccl::ccl
