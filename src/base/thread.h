// Threads of a library that lives in other people's processes.
#pragma once

#include <functional>
#include <thread>

namespace hetccl {

/// A thread with all signals blocked: they belong to the user's. Throws as std::thread does.
[[nodiscard]] std::thread start_thread(std::function<void()> body);

}  // namespace hetccl
