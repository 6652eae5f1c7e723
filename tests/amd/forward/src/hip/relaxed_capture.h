// Calls that a thread may make while a stream is captured.
#pragma once

#include "cuda/driver.h"
#include "cuda/numbers.h"

namespace forward {

/// While it lives, the driver accepts calls of this thread that a capture would otherwise refuse.
/// Allocating non-coherent memory is one call to a HIP program, and many to the driver.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const cuda::Driver& driver) : driver_(driver) {
    (void)driver_.exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { (void)driver_.exchange_capture_mode(&mode_); }

 private:
  const cuda::Driver& driver_;
  int mode_ = cuda::kCaptureRelaxed;
};

}  // namespace forward
