// Memory that was registered with a transport, by where it lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace hetccl::transport {

/// Of pieces that overlap the newest hides the others: memory that was freed, or that several users
/// registered. A `Piece` has `begin()` and `end()`. Thread-safe.
template <typename Piece>
class MemoryMap {
 public:
  using Held = std::shared_ptr<const Piece>;

  void add(const Held& piece) {
    const std::lock_guard lock(mutex_);
    all_.push_back(piece);
    show(piece);
  }
  /// Those that it hid are found again.
  void remove(const Held& piece) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, piece);
    const auto shown = shown_.find(piece->begin());
    if (shown == shown_.end() || shown->second != piece) return;
    shown_.clear();
    for (const Held& one : all_) show(one);
  }
  /// Returns the one that holds `at`; null where none does.
  [[nodiscard]] Held find(const std::byte* at) const {
    const std::lock_guard lock(mutex_);
    const auto after = shown_.upper_bound(at);
    if (after == shown_.begin()) return nullptr;
    const Held& before = std::prev(after)->second;
    return at < before->end() ? before : nullptr;
  }
  template <typename Test>
  [[nodiscard]] bool has_any(const Test& test) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(all_.begin(), all_.end(), [&](const Held& one) { return test(*one); });
  }

 private:
  void show(const Held& piece) {
    std::erase_if(shown_, [&](const auto& other) {
      return other.second->begin() < piece->end() && piece->begin() < other.second->end();
    });
    shown_[piece->begin()] = piece;
  }

  mutable std::mutex mutex_;                // guards what follows
  std::vector<Held> all_;                   // the newest last
  std::map<const std::byte*, Held> shown_;  // of all_, no two of which overlap
};

}  // namespace hetccl::transport
