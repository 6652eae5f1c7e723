#include "exec/route.h"

namespace hetccl::exec {
namespace {

// The interval at which a waiting thread checks `give_up`.
constexpr auto kGlance = std::chrono::milliseconds(1);

}  // namespace

Status Route::wait(Lock& lock, const std::function<bool()>& ready, TimePoint deadline,
                   const std::function<bool()>& give_up) {
  while (!ready()) {
    if (give_up()) return error(ErrorCode::Aborted, "the communicator was aborted");
    if (clock_.now() >= deadline)
      return error(ErrorCode::Timeout, "the other end has not agreed in time on how messages go");
    changed_.wait_for(lock, kGlance);
  }
  return {};
}

Result<Route::Assignment> Route::take(TimePoint deadline, const std::function<bool()>& give_up) {
  Lock lock(mutex_);
  HETCCL_TRY(wait(lock, [this] { return state_ != State::Proposed; }, deadline, give_up));
  const uint64_t number = next_++;
  return Assignment{number, number >= first_};
}

uint64_t Route::propose() {
  const Lock lock(mutex_);
  state_ = State::Proposed;
  return next_;
}

void Route::settle(uint64_t first) {
  const Lock lock(mutex_);
  state_ = State::Settled;
  first_ = first;
  changed_.notify_all();
}

Result<bool> Route::wait_until_settled(TimePoint deadline, const std::function<bool()>& give_up) {
  Lock lock(mutex_);
  HETCCL_TRY(wait(lock, [this] { return state_ == State::Settled; }, deadline, give_up));
  return first_ != kNever;
}

}  // namespace hetccl::exec
