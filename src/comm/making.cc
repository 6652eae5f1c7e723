#include "comm/making.h"

#include "comm/communicator.h"

namespace hetccl::comm {

// Runs on the parent's chores, so that every rank makes exchanges in the order of the calls.
Chores& Making::chores() const {
  return parent_ != nullptr ? parent_->chores_ : child_->chores_;
}

Making::~Making() {
  if (child_ == nullptr || is_used_) return;
  give_up(error(ErrorCode::InvalidUsage, "nobody has ended the group in which it was to be made"));
}

Status Making::run() {
  if (!child_->blocking()) return start();
  is_used_ = true;
  if (parent_ != nullptr) parent_->chores_.wait();
  return work_();
}

Status Making::start() {
  is_used_ = true;
  return chores().post([outcome = outcome_, work = std::move(work_)] {
    try {
      *outcome = work();
    } catch (...) {
      *outcome = caught();
      throw;
    }
  });
}

Status Making::wait() const {
  if (!child_->blocking()) return {};
  chores().wait();
  return *outcome_;
}

void Making::give_up(const Status& why) const {
  is_used_ = true;
  static_cast<void>(child_->membership_.give_up(why));
}

}  // namespace hetccl::comm
