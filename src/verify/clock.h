// Vector clocks: the completions that are known when an instruction starts. Sparse, since a queue
// learns of few others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace hetccl::verify {

/// A thread of a rank: a stream, a lane's completions in one direction, or a lane's
/// acknowledgements.
using ThreadId = uint32_t;

class Clock {
 public:
  /// Number of known completions of `thread`.
  [[nodiscard]] uint32_t of(ThreadId thread) const {
    const auto found = find(thread);
    return found != known_.end() && found->first == thread ? found->second : 0;
  }
  void set(ThreadId thread, uint32_t count) {
    const auto found = known_.begin() + (find(thread) - known_.begin());
    if (found != known_.end() && found->first == thread) {
      found->second = count;
    } else {
      known_.insert(found, {thread, count});
    }
  }
  void join(const Clock& other) {
    if (known_.empty()) {
      known_ = other.known_;
      return;
    }
    size_t missing = 0;
    for (const auto& [thread, count] : other.known_) {
      const auto found = known_.begin() + (find(thread) - known_.begin());
      if (found == known_.end() || found->first != thread) {
        ++missing;
      } else {
        found->second = std::max(found->second, count);
      }
    }
    if (missing > 0) merge(other);
  }

  /// Joins the entries of `other` for threads from `first` on.
  void join_from(const Clock& other, ThreadId first) {
    for (const auto& [thread, count] : other.known_) {
      if (thread >= first) set(thread, std::max(of(thread), count));
    }
  }

 private:
  using Entry = std::pair<ThreadId, uint32_t>;
  [[nodiscard]] std::vector<Entry>::const_iterator find(ThreadId thread) const {
    return std::lower_bound(known_.begin(), known_.end(), thread,
                            [](const Entry& entry, ThreadId t) { return entry.first < t; });
  }
  void merge(const Clock& other) {
    std::vector<Entry> all;
    all.reserve(known_.size() + other.known_.size());
    auto mine = known_.begin();
    for (const Entry& entry : other.known_) {
      while (mine != known_.end() && mine->first < entry.first) all.push_back(*mine++);
      if (mine != known_.end() && mine->first == entry.first) continue;
      all.push_back(entry);
    }
    all.insert(all.end(), mine, known_.end());
    known_ = std::move(all);
  }
  std::vector<Entry> known_;  // sorted by thread
};

}  // namespace hetccl::verify
