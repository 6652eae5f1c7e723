#include "own_messages.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace hetccl::torch_backend {
namespace {

using std::chrono::milliseconds;

// Interval at which a receive that waits for its send checks for a failure of the communicator.
constexpr milliseconds kGlance(100);

void check_fit(const Where& where, const OwnMessage& send, const OwnMessage& receive) {
  check_same_type(where, "the tensor received", receive.tensor, send.tensor);
  check_numel(where, "the tensor received", receive.tensor, send.tensor.numel(),
              "as many as this rank sends itself");
}

/// Finds the first end with that tag.
template <typename List, typename MessageOf>
auto find_tag(List& ends, int tag, MessageOf&& message_of) {
  return std::find_if(ends.begin(), ends.end(),
                      [&](auto& end) { return message_of(end).tag == tag; });
}

}  // namespace

void OwnReceive::launch(milliseconds timeout, bool /*blocking*/) {
  timeout_ = timeout;
  if (recordFunctionEndCallback_) std::ignore = getFuture();
}

void OwnReceive::attach(const c10::intrusive_ptr<HetcclWork>& both) {
  {
    const std::lock_guard lock(settle_mutex_);
    request_.members = {both};  // its errors become this one's
  }
  const std::lock_guard lock(other_->mutex);
  other_->work = both;
  other_->changed.notify_all();
}

void OwnReceive::give_up(const Failure& why) {
  const std::lock_guard lock(other_->mutex);
  other_->failure = why;
  other_->changed.notify_all();
}

c10::intrusive_ptr<HetcclWork> OwnReceive::await(milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(other_->mutex);
  while (other_->work == nullptr && !other_->failure) {
    other_->changed.wait_for(lock, kGlance);
    if (other_->work == nullptr && !other_->failure) other_->failure = communicator_->failure();
    if (timeout == kForever || std::chrono::steady_clock::now() < end) continue;
    if (other_->work != nullptr || other_->failure) break;
    std::rethrow_exception(
        error_of({hetcclTimeout,
                  c10::str("this rank has not sent itself the message within ", timeout.count(),
                           " ms: isend it before the receive is waited for")}));
  }
  return other_->work;
}

bool OwnReceive::wait(milliseconds timeout) {
  if (!settled()) {
    const auto both = await(timeout > kNoTimeout ? timeout : timeout_);
    if (both != nullptr) both->wait(timeout);
    if (both == nullptr || both->isCompleted()) settle();
  }
  check();
  return true;
}

void OwnReceive::blockCurrentStream() {
  if (const auto both = settled() ? nullptr : await(timeout_)) both->blockCurrentStream();
}

bool OwnReceive::reached() const {
  const std::lock_guard lock(other_->mutex);
  return other_->failure || (other_->work != nullptr && other_->work->isCompleted());
}

std::function<void()> OwnReceive::until_reached() const {
  return [other = other_, communicator = communicator_] {
    std::unique_lock lock(other->mutex);
    while (other->work == nullptr && !other->failure) {
      other->changed.wait_for(lock, kGlance);
      if (other->work == nullptr && !other->failure) other->failure = communicator->failure();
    }
    const auto both = other->work;
    lock.unlock();
    if (both != nullptr) std::ignore = poll_until([&] { return both->isCompleted(); }, kForever);
  };
}

std::optional<Failure> OwnReceive::failure() const {
  {
    const std::lock_guard lock(other_->mutex);
    if (other_->failure) return other_->failure;
  }
  return HetcclWork::failure();
}

std::optional<OwnMessage> OwnMessages::take_send(const Where& where, const OwnMessage& receive) {
  const std::lock_guard lock(mutex_);
  const auto found = find_tag(sends_, receive.tag, [](auto& end) -> auto& { return end; });
  if (found == sends_.end()) return std::nullopt;
  check_fit(where, *found, receive);
  OwnMessage taken = std::move(*found);
  sends_.erase(found);
  return taken;
}

std::optional<OwnMessages::Receive> OwnMessages::take_receive(const Where& where,
                                                              const OwnMessage& send) {
  const std::lock_guard lock(mutex_);
  const auto found = find_tag(receives_, send.tag, [](auto& end) -> auto& { return end.message; });
  if (found == receives_.end()) return std::nullopt;
  check_fit(where, send, found->message);
  Receive taken = std::move(*found);
  receives_.erase(found);
  return taken;
}

int64_t OwnMessages::count_unmatched_sends(int tag) {
  const std::lock_guard lock(mutex_);
  return std::count_if(sends_.begin(), sends_.end(),
                       [tag](const OwnMessage& send) { return send.tag == tag; }) -
         std::count_if(receives_.begin(), receives_.end(),
                       [tag](const Receive& one) { return one.message.tag == tag; });
}

void OwnMessages::keep(OwnMessage send) {
  const std::lock_guard lock(mutex_);
  if (!closed_) sends_.push_back(std::move(send));
}

void OwnMessages::keep(Receive receive) {
  const std::lock_guard lock(mutex_);
  if (!closed_) return receives_.push_back(std::move(receive));
  receive.work->give_up({hetcclInvalidUsage, "the process group has been destroyed"});
}

void OwnMessages::close() {
  std::list<Receive> receives;
  std::list<OwnMessage> sends;  // freed outside the lock: may take the interpreter's
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    receives.swap(receives_);
    sends.swap(sends_);
  }
  for (const Receive& receive : receives) {
    receive.work->give_up({hetcclInvalidUsage,
                           "the process group was destroyed before this rank sent itself the "
                           "message"});
  }
}

}  // namespace hetccl::torch_backend
