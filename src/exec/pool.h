// Keeps objects for reuse, so that the steady state allocates nothing.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace hetccl::exec {

/// One thread at a time calls `take`; any thread calls `give_back`.
template <typename T>
class Pool {
 public:
  /// Returns an unused object, or makes one from `arguments`.
  template <typename... Arguments>
  T& take(Arguments&... arguments) {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        T* one = free_.back();
        free_.pop_back();
        return *one;
      }
    }
    all_.push_back(std::make_unique<T>(arguments...));
    return *all_.back();
  }
  void give_back(T& one) {
    std::lock_guard lock(mutex_);
    free_.push_back(&one);
  }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::mutex mutex_;  // guards `free_`
  std::vector<T*> free_;
};

}  // namespace hetccl::exec
