// Threads of a library that lives in other people's processes.
#pragma once

#include <functional>
#include <thread>

#include "base/status.h"

namespace hetccl {

/// A thread that takes none of the process's signals: they belong to the user's threads. Faults of
/// its own are told as everywhere. `name`: a literal of at most 15 characters, what debuggers show.
/// SystemError where the process may have no more threads, or the machine has no memory for one.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace hetccl
