// Calls between ncclGroupStart and ncclGroupEnd on one thread. The vendor's or hetccl's own group
// begins with the first call for that library.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nccl/communicator.h"

namespace hetccl::nccl {

/// The creation of a communicator, which blocks.
struct Creation {
  const void* order = nullptr;  ///< creations of one parent run in order; null: alone
  bool blocking = true;         ///< whether ncclGroupEnd waits for it
  std::function<Outcome()> run;
};

/// The group of the calling thread.
class Group {
 public:
  static Group& of_this_thread();
  [[nodiscard]] bool open() const { return depth_ > 0; }

  ncclResult_t start();
  ncclResult_t end();
  /// Ends the group without running anything; returns the vendor library's estimate of the time.
  ncclResult_t simulate_end(ncclSimInfo_t* info);

  /// Begins the vendor library's group, if this is the first call for it.
  ncclResult_t enter_vendor();
  ncclResult_t enter_mixed();
  /// Runs the creation: inside a group at its end, otherwise now or in the background.
  ncclResult_t run(Creation creation);
  /// Runs an action that ends a mixed communicator: inside a group after its calls.
  ncclResult_t end_after(std::function<Outcome()> action);
  /// Records that a call in the group was refused: the group's end returns the first such code.
  void note_refusal(ncclResult_t code);

 private:
  struct Libraries {
    bool vendor = false, mixed = false;
  };
  static ncclResult_t run_all(std::vector<Creation> creations);

  int depth_ = 0;
  Libraries begun_;
  std::vector<Creation> creations_;
  std::vector<std::function<Outcome()>> ends_;
  ncclResult_t refused_ = ncclSuccess;
};

}  // namespace hetccl::nccl
