#include "comm/talk.h"

#include <thread>
#include <utility>

namespace hetccl::comm {
Talk::Talk(progress::Engine& engine, std::unique_ptr<transport::Channel> channel, uint64_t number,
           const Cancel& cancel)
    : engine_(engine), channel_(std::move(channel)), number_(number), cancel_(cancel) {
  engine_.add(*this, [this](const Status& why) {
    thrown_ = why;
    under_way_ = false;
  });
}

Talk::~Talk() {
  engine_.remove(*this);
  engine_.exclusively([this] { channel_.reset(); });
}

Status Talk::exchange(std::span<std::byte> mine, std::span<std::byte> theirs) {
  transport::MessageInfo info;
  info.communicator = number_;
  info.sequence = rounds_++;
  engine_.exclusively([&] {
    channel_->post_send({mine.data(), mine.size(), info});
    channel_->post_recv({theirs.data(), theirs.size(), info});
    under_way_ = true;
  });
  engine_.notify(true);
  while (under_way_ && !cancel_.is_set()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Status status;
  engine_.exclusively([&] {
    status = channel_->status();
    if (status.ok()) status = thrown_;
    if (under_way_ && status.ok()) status = cancel_.reason();
    under_way_ = false;
    if (!status.ok()) channel_->close();  // it does not touch the caller's memory any more
  });
  return status;
}

bool Talk::poll(TimePoint /*now*/) {
  const bool through =
      channel_->sends_completed() == rounds_ && channel_->recvs_completed() == rounds_;
  if (!through && channel_->status().ok()) return false;
  under_way_ = false;
  return true;
}

}  // namespace hetccl::comm
