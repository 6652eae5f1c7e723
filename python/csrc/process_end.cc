#include "process_end.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace hetccl::torch_backend {
namespace {

constexpr std::chrono::milliseconds kPatience(500);

std::atomic<bool> ending{false};
std::atomic<int> under_way{0};

/// Either a thread sees `ending`, or this function sees the thread in `under_way`.
void end() {
  ending.store(true);
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (under_way.load() > 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

void prepare_for_process_end() {
  static const pid_t owner = getpid();
  static const int prepared = std::atexit([] {
    if (getpid() == owner) end();  // a forked child has no other threads
  });
  static_cast<void>(prepared);  // registration may fail for lack of memory, which is ignored
}

BeforeProcessEnd::BeforeProcessEnd() {
  under_way.fetch_add(1);
  if (!ending.load()) return;
  under_way.fetch_sub(1);
  for (;;) pause();
}

BeforeProcessEnd::~BeforeProcessEnd() {
  under_way.fetch_sub(1);
}

}  // namespace hetccl::torch_backend
