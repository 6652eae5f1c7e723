/// Protects detached threads at the end of the process, when objects that they use, above all a
/// GPU's driver, may disappear at any moment.
#pragma once

namespace hetccl::torch_backend {

/// Makes exit wait for threads in `BeforeProcessEnd`. Must be called after the device's driver was
/// initialised, because exit handlers run in reverse order.
void prepare_for_process_end();

/// A section of a thread that finishes before the process ends, or never begins: once the process
/// ends, the constructor does not return. An exit waits half a second for running sections.
class BeforeProcessEnd {
 public:
  BeforeProcessEnd();
  ~BeforeProcessEnd();
  BeforeProcessEnd(const BeforeProcessEnd&) = delete;
  BeforeProcessEnd& operator=(const BeforeProcessEnd&) = delete;
};

}  // namespace hetccl::torch_backend
