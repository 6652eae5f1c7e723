#include "fake/fake_network.h"

#include <algorithm>
#include <cstring>
#include <deque>

namespace hetccl::fake {

using transport::Address;
using transport::Channel;
using transport::Parcel;
using transport::PeerId;
using transport::Transport;

// One direction between two ranks.
class Wire {
 public:
  explicit Wire(uint64_t seed) : random_(seed) {}

  void post(bool send, const Parcel& transfer) {
    std::lock_guard lock(mutex_);
    (send ? sends_ : recvs_).push_back(transfer);
  }
  uint64_t completed(bool send) {
    std::lock_guard lock(mutex_);
    return send ? sent_ : received_;
  }
  std::optional<transport::MessageInfo> incoming() {
    std::lock_guard lock(mutex_);
    if (sends_.empty() || !recvs_.empty() || !status_.ok()) return std::nullopt;
    return sends_.front().info;
  }
  void fail(Status status) {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    sends_.clear();
    recvs_.clear();
  }
  Status status() {
    std::lock_guard lock(mutex_);
    return status_;
  }

  bool move() {
    std::lock_guard lock(mutex_);
    if (random_() % 3 == 0) return false;
    if (late_ > 0) {
      sent_ += late_, late_ = 0;
      return true;
    }
    if (sends_.empty() || recvs_.empty() || !status_.ok()) return false;
    Parcel& send = sends_.front();
    Parcel& recv = recvs_.front();
    if (!same(send, recv)) {
      status_ = error(ErrorCode::InvalidUsage, "fake: the message is not the one expected");
      return true;
    }
    const size_t left = send.bytes - moved_;
    const size_t piece = left == 0 ? 0 : 1 + random_() % left;
    if (piece > 0) {
      std::memcpy(static_cast<std::byte*>(recv.data) + moved_,
                  static_cast<const std::byte*>(send.data) + moved_, piece);
    }
    moved_ += piece;
    if (moved_ < send.bytes) return true;
    moved_ = 0;
    sends_.pop_front();
    recvs_.pop_front();
    ++received_;
    ++late_;
    return true;
  }

 private:
  static bool same(const Parcel& a, const Parcel& b) {
    return a.bytes == b.bytes && a.info.communicator == b.info.communicator &&
           a.info.sequence == b.info.sequence && a.info.slice == b.info.slice &&
           a.info.step == b.info.step && a.info.beside == b.info.beside &&
           a.info.signature == b.info.signature;
  }

  std::mutex mutex_;
  std::mt19937_64 random_;
  std::deque<Parcel> sends_, recvs_;
  size_t moved_ = 0;
  uint64_t sent_ = 0, received_ = 0, late_ = 0;  // late: received, but not told to the sender
  Status status_;
};

namespace {

class NetworkChannel : public Channel {
 public:
  NetworkChannel(std::shared_ptr<Wire> out, std::shared_ptr<Wire> in, std::span<std::byte> window)
      : out_(std::move(out)), in_(std::move(in)), window_(window) {}
  void post_send(const Parcel& transfer) override { out_->post(true, transfer); }
  void post_recv(const Parcel& transfer) override { in_->post(false, transfer); }
  uint64_t sends_completed() const override { return out_->completed(true); }
  uint64_t recvs_completed() const override { return in_->completed(false); }
  std::optional<transport::MessageInfo> incoming() override { return in_->incoming(); }
  const Status& status() const override {
    if (status_.ok()) status_ = out_->status();
    if (status_.ok()) status_ = in_->status();
    return status_;
  }
  void close() override {
    out_->fail(error(ErrorCode::RemoteError, "fake: closed"));
    in_->fail(error(ErrorCode::RemoteError, "fake: closed"));
  }
  std::span<std::byte> window() override { return window_; }

 private:
  std::shared_ptr<Wire> out_, in_;
  std::span<std::byte> window_;
  mutable Status status_;
};

}  // namespace

class NetworkTransport : public Transport {
 public:
  NetworkTransport(Network& network, int rank) : network_(network), rank_(rank) {}
  std::string name() const override { return "fake"; }
  Result<Address> listen() override { return Address{}; }
  void connect_later(const PeerId& id, const Address& /*address*/,
                     const std::vector<uint8_t>& /*secret*/, const WaitLimit& /*limit*/,
                     Connected connected) override {
    connected(make(id));
  }
  bool progress() override {
    bool moved = false;
    std::lock_guard lock(mutex_);
    for (auto& wire : wires_) moved |= wire->move();
    return moved;
  }
  void forget(uint64_t /*communicator*/, int /*self*/) override {}
  int poll_fd() const override { return -1; }
  ShmSource* shm_source() override { return nullptr; }
  uint64_t bytes_sent() const override { return 0; }

 private:
  std::unique_ptr<Channel> make(const PeerId& id) {
    auto out = network_.wire(rank_, id.peer), in = network_.wire(id.peer, rank_);
    std::lock_guard lock(mutex_);
    wires_.push_back(out);
    wires_.push_back(in);
    const auto window = network_.window(rank_, id.peer, id.window);
    return std::make_unique<NetworkChannel>(out, in, window);
  }

  Network& network_;
  int rank_;
  std::mutex mutex_;  // guards the members below: connects begin while others drive
  std::vector<std::shared_ptr<Wire>> wires_;
};

std::unique_ptr<Transport> Network::transport(int rank) {
  return std::make_unique<NetworkTransport>(*this, rank);
}

std::shared_ptr<Wire> Network::wire(int from, int to) {
  std::lock_guard lock(mutex_);
  auto& wire = wires_[{from, to}];
  const auto number = static_cast<uint64_t>(from * 1000 + to);
  if (wire == nullptr) wire = std::make_shared<Wire>(seed_ ^ number);
  return wire;
}

std::span<std::byte> Network::window(int rank, int peer, size_t bytes) {
  std::lock_guard lock(mutex_);
  auto& window = windows_[std::minmax(rank, peer)];
  if (window.empty()) window.resize(bytes);
  return window;
}

void Network::sever(int rank) {
  std::lock_guard lock(mutex_);
  for (auto& [ends, wire] : wires_) {
    if (ends.first == rank || ends.second == rank) {
      wire->fail(error(ErrorCode::RemoteError, "fake: severed"));
    }
  }
}

}  // namespace hetccl::fake
