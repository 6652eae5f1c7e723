/// The process's end, for threads that nobody joins: what they use, a GPU's driver above all, may
/// be gone from then on at any moment.
#pragma once

namespace hetccl::torch_backend {

/// Has exit wait for whoever is `BeforeProcessEnd`. Call it once the device's driver has been
/// initialised: what was last prepared for an exit is done first.
void prepare_for_process_end();

/// A stretch of a thread that is over before the process ends, or never begins: the constructor
/// does not return once the process ends. An exit waits half a second for those that are under way.
class BeforeProcessEnd {
 public:
  BeforeProcessEnd();
  ~BeforeProcessEnd();
  BeforeProcessEnd(const BeforeProcessEnd&) = delete;
  BeforeProcessEnd& operator=(const BeforeProcessEnd&) = delete;
};

}  // namespace hetccl::torch_backend
