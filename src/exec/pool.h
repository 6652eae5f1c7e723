// Objects that are made once and used again, so that steady state allocates nothing.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace hetccl::exec {

/// `take` by one thread at a time; `give_back` by any.
template <typename T>
class Pool {
 public:
  /// One that is not in use, made of `arguments` where there is none.
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
