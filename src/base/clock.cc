#include "base/clock.h"

namespace hetccl {

namespace {

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

const Clock& steady_clock() {
  static const auto* const clock = new SteadyClock;  // never destroyed: code that runs at exit uses
                                                     // it
  return *clock;
}

}  // namespace hetccl
