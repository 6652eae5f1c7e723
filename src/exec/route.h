// Which way a lane's messages go. At first they go through its channel. From a number that both
// ends agree on, the cluster's library carries them; both go on to call meanwhile. Each end tells
// the other the number of its next message, and lets none go until it knows the other's: the larger
// is the first that the library carries.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"

namespace hetccl::exec {

/// Thread-safe.
class Route {
 public:
  explicit Route(const Clock& clock) : clock_(clock) {}
  struct Assignment {
    uint64_t number = 0;  ///< of the message, among those of its lane
    bool by_library = false;
  };

  /// Assigns the next message. Waits while a number is being agreed on, which takes no other call
  /// of the other end: until `deadline` (Timeout), or until `give_up` says so (Aborted).
  Result<Assignment> take(TimePoint deadline, const std::function<bool()>& give_up);
  /// The number of this end's next message; `take` waits from now on.
  uint64_t propose();
  /// What the ends have agreed on: messages from `first` on go by the library; kNever: none does.
  void settle(uint64_t first);
  /// Waits for that, as `take`: whether any message goes by the library.
  Result<bool> wait_until_settled(TimePoint deadline, const std::function<bool()>& give_up);

  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

 private:
  enum class State : uint8_t { Open, Proposed, Settled };
  using Lock = std::unique_lock<std::mutex>;
  Status wait(Lock& lock, const std::function<bool()>& ready, TimePoint deadline,
              const std::function<bool()>& give_up);

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::Open;
  uint64_t next_ = 0, first_ = kNever;
};

}  // namespace hetccl::exec
