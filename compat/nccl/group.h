// What a thread has begun with ncclGroupStart. The libraries' own groups begin with the first call
// that concerns them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nccl/communicator.h"

namespace hetccl::nccl {

/// The creation of a communicator: it blocks.
struct Creation {
  const void* order = nullptr;  ///< those of one parent run one after the other; null: alone
  bool blocking = true;         ///< whether the call waits for it
  std::function<Outcome()> run;
};

/// The calling thread's.
class Group {
 public:
  static Group& of_this_thread();
  [[nodiscard]] bool open() const { return depth_ > 0; }

  ncclResult_t start();
  ncclResult_t end();
  /// Ends it without running anything. The time that the vendor's library estimates.
  ncclResult_t simulate_end(ncclSimInfo_t* info);

  /// A call of that library follows.
  ncclResult_t enter_vendor();
  ncclResult_t enter_mixed();
  /// Runs it: in a group at its end, else now, or in the background.
  ncclResult_t run(Creation creation);
  /// Runs what ends a mixed communicator: in a group behind its calls.
  ncclResult_t end_after(std::function<Outcome()> action);
  /// A call in the group was refused: its end returns the first such code.
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
