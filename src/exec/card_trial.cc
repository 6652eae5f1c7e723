#include "exec/card_trial.h"

#include <cstring>
#include <new>
#include <thread>

namespace hetccl::exec {
namespace {

void fill(std::byte* data, uint8_t seed) {
  for (size_t i = 0; i < CardTrial::kBytes; ++i)
    data[i] = static_cast<std::byte>((i * 2654435761U >> 7U) + seed);
}

Status compare(const std::byte* sent, const std::byte* seen, const char* who) {
  if (std::memcmp(sent, seen, CardTrial::kBytes) == 0) return {};
  return error(ErrorCode::SystemError, "%s sees other bytes than were written", who);
}

}  // namespace

Result<std::unique_ptr<CardTrial>> CardTrial::prepare(device::Device& device) {
  std::unique_ptr<CardTrial> trial(new CardTrial(device));
  HETCCL_TRY(trial->open());
  return trial;
}

Status CardTrial::open() {
  HETCCL_ASSIGN(stream_, device_.create_stream());
  HETCCL_ASSIGN(on_device_, device_.allocate(kBytes));
  HETCCL_ASSIGN(void* pinned, device_.allocate_pinned(2 * kBytes));
  pinned_ = static_cast<std::byte*>(pinned);
  HETCCL_ASSIGN(void* flag, device_.allocate_pinned(sizeof(device::Flag)));
  copied_ = new (flag) device::Flag;
  return {};
}

// Keeps memory that a stream may still access.
CardTrial::~CardTrial() {
  if (hangs_) return;
  if (copied_ != nullptr) device_.free_pinned(copied_);
  if (pinned_ != nullptr) device_.free_pinned(pinned_);
  if (on_device_ != nullptr) device_.free(on_device_);
}

Status CardTrial::copy_by_stream(void* to, const void* from, const WaitLimit& limit) {
  HETCCL_TRY(device_.copy(*stream_, to, from, kBytes));
  HETCCL_TRY(device_.write_flag(*stream_, *copied_, ++copies_));
  const TimePoint deadline = limit.deadline();
  while (!copied_->reached(copies_)) {
    Status ended = limit.cancelled();
    if (ended.ok() && limit.now() >= deadline)
      ended = error(ErrorCode::Timeout, "%s copies nothing", device_.model().c_str());
    hangs_ = !ended.ok();
    HETCCL_TRY(ended);
    std::this_thread::yield();
  }
  return {};
}

Status CardTrial::run(transport::Transport& transport, size_t card, const WaitLimit& limit) {
  std::byte* const back = pinned_ + kBytes;
  fill(pinned_, static_cast<uint8_t>(card));
  HETCCL_TRY(transport.copy_by_card(card, on_device_, pinned_, kBytes, limit));
  HETCCL_TRY(copy_by_stream(back, on_device_, limit));
  HETCCL_TRY(compare(pinned_, back, "the device"));
  fill(pinned_, static_cast<uint8_t>(card + 128));
  HETCCL_TRY(copy_by_stream(on_device_, pinned_, limit));
  HETCCL_TRY(transport.copy_by_card(card, back, on_device_, kBytes, limit));
  return compare(pinned_, back, "the card");
}

}  // namespace hetccl::exec
