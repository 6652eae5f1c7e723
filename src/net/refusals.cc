#include "net/refusals.h"

#include <chrono>
#include <utility>

namespace hetccl::net {

namespace {

constexpr int kPerPeriod = 5;
constexpr std::chrono::seconds kPeriod(10);

}  // namespace

void Refusals::add(const std::string& from, const std::string& why) {
  const TimePoint now = clock_.now();
  if (period_begin_ == TimePoint() || now - period_begin_ >= kPeriod) {
    period_begin_ = now;
    shown_ = 0;
  }
  if (shown_ == kPerPeriod) {
    ++not_shown_;
    return;
  }
  ++shown_;
  std::string before;
  if (const uint64_t more = std::exchange(not_shown_, 0); more > 0)
    before = std::to_string(more) + " more were refused and not shown; ";
  log_.warn("%s refused a connection from %s: %s%s", listener_.c_str(), from.c_str(),
            before.c_str(), why.c_str());
}

}  // namespace hetccl::net
