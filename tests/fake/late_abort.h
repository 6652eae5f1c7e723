// A cluster's library whose abort is late, as NCCL's is while a call waits inside it: it is asked
// for at once, and entered when the test says.
#pragma once

#include <atomic>

#include "fake/forwarding_communicator.h"

namespace hetccl::fake {

class LateAbort final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  /// Does the abort that `abort` has postponed.
  void enter_abort() {
    real_->abort();
    entered_.store(true);
  }

  [[nodiscard]] Status async_error() const override {
    return asked_ ? error(ErrorCode::Aborted, "the cluster's communicator was aborted")
                  : real_->async_error();
  }
  void abort() override { asked_.store(true); }
  [[nodiscard]] bool abort_has_begun() override { return entered_; }

 private:
  std::atomic<bool> asked_{false}, entered_{false};
};

}  // namespace hetccl::fake
