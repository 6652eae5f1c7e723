// Finds memory registered with a transport by its address.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace hetccl::transport {

/// If pieces overlap, the newest hides the others: their memory was freed, or several users
/// registered it. A `Piece` has `begin()` and `end()`. Thread-safe.
template <typename Piece>
class MemoryMap {
 public:
  using Held = std::shared_ptr<const Piece>;

  void add(const Held& piece) {
    const std::lock_guard lock(mutex_);
    all_.push_back(piece);
    show(piece);
  }
  /// Pieces that it hid are found again.
  void remove(const Held& piece) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, piece);
    const auto shown = shown_.find(piece->begin());
    if (shown == shown_.end() || shown->second != piece) return;
    shown_.clear();
    for (const Held& one : all_) show(one);
  }
  /// Returns the piece that contains `at`; null: none.
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
  std::vector<Held> all_;                   // newest last
  std::map<const std::byte*, Held> shown_;  // pieces of all_ that do not overlap
};

}  // namespace hetccl::transport
