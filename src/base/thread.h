// Starts threads of a library that lives in other people's processes.
#pragma once

#include <functional>
#include <thread>

#include "base/status.h"

namespace hetccl {

/// Starts a thread that takes none of the process's signals, because they belong to the user's
/// threads. It still receives its own faults. `name`: a literal of at most 15 characters, shown by
/// debuggers. Returns SystemError if the process may have no more threads, or memory is short.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace hetccl
