// The `host` library: collectives of processes or threads on one host through shared memory.
// Streams are `TaskQueue*`; whoever polls the queue moves the data.
#pragma once

#include <memory>

#include "ccl/ccl.h"

namespace hetccl {
class Crew;
}  // namespace hetccl

namespace hetccl::ccl {

/// Shared memory does not reach other hosts.
inline constexpr Reach kHostReach{.hosts = false};

/// The first rank should call `init` on the Library that made the id; elsewhere it works, but the
/// segment's descriptor stays open as long as that Library. Thread-safe. `crew` (may be null) helps
/// the ranks that will use it, here and in other processes.
std::unique_ptr<Library> make_host_library(std::shared_ptr<const Crew> crew = nullptr);

}  // namespace hetccl::ccl
