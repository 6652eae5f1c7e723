// Decides which way a lane's messages go: first through its channel; then, from a number that both
// ends agree on, through the cluster's library. Both ends keep making calls meanwhile. Each end
// sends the number of its next message, and starts no message until it knows the other's. The
// larger number is the first that the library carries.
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
    uint64_t number = 0;  ///< the message's number in its lane
    bool by_library = false;
  };

  /// Assigns the next message. Blocks while the ends agree on a number, which needs no call of the
  /// other end. Returns Timeout at `deadline`, Aborted if `give_up` returns true.
  Result<Assignment> take(TimePoint deadline, const std::function<bool()>& give_up);
  /// Returns the number of this end's next message. From now on `take` waits.
  uint64_t propose();
  /// Ends the agreement: the library carries messages from `first` on; kNever: none.
  void settle(uint64_t first);
  /// Waits like `take`. Returns whether the library carries any message.
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
