#include "transport/adaptor/adaptor_channel.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace hetccl::transport::adaptors {

using adaptor::ask;

net::Mac Name::derive(const char* what, const net::Secret& secret,
                      const std::vector<uint8_t>& more) const {
  const std::string text = format("hetccl transport adaptor, %s: %s, %016llx, %d, %d;", what,
                                  transport.c_str(), static_cast<unsigned long long>(communicator),
                                  std::min(self, peer), std::max(self, peer));
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.insert(bytes.end(), more.begin(), more.end());
  return net::authenticate(secret, bytes.data(), bytes.size());
}

// --- Proof of the secret

net::Mac AdaptorChannel::proof_of(int side, const net::Secret& secret) const {
  std::vector<uint8_t> nonces;
  for (const auto& nonce : proof_.nonces) nonces.insert(nonces.end(), nonce.begin(), nonce.end());
  return name_.derive(side == 0 ? "proof of side 0" : "proof of side 1", secret, nonces);
}

Status AdaptorChannel::prove(const net::Secret& secret, TimePoint deadline, const WaitLimit& limit,
                             const std::function<void()>& meanwhile) {
  const auto side = static_cast<size_t>(name_.side());
  auto& mine = proof_.nonces[side];
  auto& theirs = proof_.nonces[1 - side];
  net::random_bytes(mine.data(), mine.size());
  {
    const std::lock_guard lock(core_->mutex);
    HETCCL_TRY(receive(theirs.data(), theirs.size()));
    HETCCL_TRY(send(mine.data(), mine.size()));
  }
  HETCCL_TRY(await(1, deadline, limit, meanwhile));
  proof_.mine = proof_of(name_.side(), secret);
  {
    const std::lock_guard lock(core_->mutex);
    HETCCL_TRY(receive(proof_.theirs.data(), proof_.theirs.size()));
    HETCCL_TRY(send(proof_.mine.data(), proof_.mine.size()));
  }
  HETCCL_TRY(await(2, deadline, limit, meanwhile));
  if (!net::same(proof_.theirs, proof_of(1 - name_.side(), secret)))
    return error(ErrorCode::RemoteError, "the other end does not know this job's secret");
  const std::lock_guard lock(core_->mutex);
  HETCCL_TRY(expect_header());
  core_->channels.push_back(this);
  return {};
}

// Waits until that many receives are complete.
Status AdaptorChannel::await(uint64_t receives, TimePoint deadline, const WaitLimit& limit,
                             const std::function<void()>& meanwhile) {
  constexpr std::chrono::microseconds kFirstRest{20}, kLongestRest{1000};
  for (auto rest = kFirstRest;; rest = std::min(rest * 2, kLongestRest)) {
    {
      const std::lock_guard lock(core_->mutex);
      HETCCL_TRY(core_->move_for_connect());
      const Status counted = count();
      if (done_receives_ >= receives) return {};
      HETCCL_TRY(counted);
    }
    HETCCL_TRY(limit.cancelled());
    if (limit.now() >= deadline)
      return error(ErrorCode::Timeout, "it has not proven that it knows this job's secret");
    std::this_thread::sleep_for(rest);
    meanwhile();
  }
}

// --- Calls of the adaptor

Status AdaptorChannel::send(const void* data, size_t bytes) {
  HETCCL_TRY(
      ask(core_->part(), "send", [&] { return core_->part().calls.send(channel_, data, bytes); }));
  ++posted_sends_;
  core_->bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

Status AdaptorChannel::receive(void* data, size_t bytes) {
  HETCCL_TRY(ask(core_->part(), "receive",
                 [&] { return core_->part().calls.receive(channel_, data, bytes); }));
  ++posted_receives_;
  return {};
}

// Updates the counts. Returns RemoteError if nothing more will complete; the counts are valid even
// then.
Status AdaptorChannel::count() {
  uint64_t sends = done_sends_, receives = done_receives_;
  const Status told = ask(core_->part(), "the channel has ended", [&] {
    return core_->part().calls.completed(channel_, &sends, &receives);
  });
  if (sends < done_sends_ || sends > posted_sends_ || receives < done_receives_ ||
      receives > posted_receives_) {
    return error(ErrorCode::SystemError,
                 "%s: completed counts %llu sends and %llu receives, of %llu and %llu, after %llu "
                 "and %llu",
                 core_->part().name.c_str(), static_cast<unsigned long long>(sends),
                 static_cast<unsigned long long>(receives),
                 static_cast<unsigned long long>(posted_sends_),
                 static_cast<unsigned long long>(posted_receives_),
                 static_cast<unsigned long long>(done_sends_),
                 static_cast<unsigned long long>(done_receives_));
  }
  done_sends_ = sends;
  done_receives_ = receives;
  if (told.ok()) return {};
  return error(ErrorCode::RemoteError, "connection to rank %d closed (%s)", name_.peer,
               told.message().c_str());
}

// --- Messages

void AdaptorChannel::post_send(const Parcel& transfer) {
  const std::lock_guard lock(core_->mutex);
  if (!status_.ok()) return;
  Sending& sending = sends_.emplace_back();
  encode({next_number_++, 0, transfer.bytes, transfer.bytes, transfer.info}, sending.header.data());
  Status sent = send(sending.header.data(), kHeaderBytes);
  if (sent.ok() && transfer.bytes > 0) sent = send(transfer.data, transfer.bytes);
  sending.end = posted_sends_;
  if (!sent.ok()) fail(sent);
}

void AdaptorChannel::post_recv(const Parcel& transfer) {
  const std::lock_guard lock(core_->mutex);
  if (!status_.ok()) return;
  recvs_.push(transfer);
  if (const auto taken = take_all(); !taken.ok()) fail(taken.status());
}

std::optional<MessageInfo> AdaptorChannel::incoming() {
  if (!status_.ok() || !recvs_.empty() || !arrived_) return std::nullopt;
  return arrived_->info;
}

Status AdaptorChannel::expect_header() {
  HETCCL_TRY(receive(header_.data(), header_.size()));
  header_at_ = posted_receives_;
  return {};
}

// Takes up the next header. Returns whether one has come.
Result<bool> AdaptorChannel::take_header() {
  if (done_receives_ < header_at_) return false;
  auto header = decode(header_.data());
  if (!header.ok()) return header.status().with(format("from rank %d", name_.peer));
  if (header->number != expected_number_ || header->offset != 0 || header->bytes != header->total)
    return error(ErrorCode::RemoteError, "rank %d sent a message in another order", name_.peer);
  ++expected_number_;
  arrived_ = *header;
  return true;
}

// Matches the arrived message to the first receive.
Status AdaptorChannel::begin_payload() {
  const Parcel& transfer = recvs_.front();
  HETCCL_TRY(check(*arrived_, transfer, name_.peer));
  arrived_.reset();
  if (transfer.bytes > 0) {
    HETCCL_TRY(receive(transfer.data, transfer.bytes));
    payload_at_ = posted_receives_;
  } else {
    finish_receive();
  }
  return expect_header();
}

void AdaptorChannel::finish_receive() {
  payload_at_ = 0;
  recvs_.pop();
  ++recvs_completed_;
}

// Returns whether anything has changed.
Result<bool> AdaptorChannel::take_all() {
  for (bool moved = false;; moved = true) {
    if (payload_at_ != 0) {
      if (done_receives_ < payload_at_) return moved;
      finish_receive();
    } else if (!arrived_) {
      HETCCL_ASSIGN(const bool come, take_header());
      if (!come) return moved;
    } else if (!recvs_.empty()) {
      HETCCL_TRY(begin_payload());
    } else {
      return moved;
    }
  }
}

bool AdaptorChannel::advance() {
  if (!status_.ok()) return false;
  const uint64_t sends = sends_completed_;
  if (ended_.ok()) ended_ = count();
  for (; !sends_.empty() && sends_.front().end <= done_sends_; ++sends_completed_)
    sends_.pop_front();
  const auto taken = take_all();
  if (!taken.ok()) return fail(taken.status());
  // An empty message is complete with its header, though its receive may be posted later.
  const bool holds = arrived_ && arrived_->total == 0;
  if (!ended_.ok() && !holds) return fail(ended_);
  return taken.value() || sends != sends_completed_;
}

bool AdaptorChannel::fail(const Status& why) {
  if (!status_.ok()) return false;
  status_ = why;
  return true;
}

void AdaptorChannel::close() {
  const std::lock_guard lock(core_->mutex);
  if (channel_ == nullptr) return;
  std::erase(core_->channels, this);
  static_cast<void>(ask(core_->part(), "close", [this] {
    core_->part().calls.close(channel_);
    return 0;
  }));
  channel_ = nullptr;
  fail(error(ErrorCode::Aborted, "the channel to rank %d was closed by this rank", name_.peer));
}

}  // namespace hetccl::transport::adaptors
