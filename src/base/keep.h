// Keeps memory that a device may still write to.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace hetccl {

/// Never destroys it. Thread-safe.
template <typename Thing>
void keep_until_exit(Thing thing) {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::unique_ptr<Thing>>;  // leak checkers can reach it
  std::lock_guard lock(mutex);
  kept->push_back(std::make_unique<Thing>(std::move(thing)));
}

}  // namespace hetccl
