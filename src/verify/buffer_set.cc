#include "verify/buffer_set.h"

namespace hetccl::verify {

const Use* BufferSet::add(const Clock& clock, Use use) {
  Use* own = nullptr;
  for (Use& last : last_) {
    if (last.call == use.call) {
      if (last.thread == use.thread) own = &last;
    } else if (clock.of(last.thread) < last.count) {
      return &last;
    }
  }
  if (own != nullptr) {
    *own = use;
  } else {
    last_.push_back(use);
  }
  return nullptr;
}

}  // namespace hetccl::verify
