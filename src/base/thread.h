// Threads of a library that lives in other people's processes.
#pragma once

#include <functional>
#include <thread>

namespace hetccl {

/// A thread that takes none of the process's signals: they belong to the user's threads. Faults of
/// its own are told as everywhere. `name`: a literal of at most 15 characters, what debuggers show.
/// Throws as std::thread does.
[[nodiscard]] std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace hetccl
