#include "transport/shm/shm_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/exception.h"
#include "transport/shm/connector.h"
#include "transport/shm/shm_channel.h"

namespace hetccl::transport {

namespace {

using shm::Channels;
using shm::Segment;
using shm::ShmChannel;

// The bytes that one call of progress() may move, because one thread drives many ranks.
constexpr size_t kProgressBudget = 1 << 20;

// The first byte of an encoded mailbox address.
constexpr uint8_t kMagic = 'S';
constexpr size_t kAddressBytes = 1 + sizeof(int32_t) * 2 + sizeof(uint64_t) + 16;

Address encode(const SharedMemoryAddress& address) {
  Address bytes(kAddressBytes);
  bytes[0] = kMagic;
  std::memcpy(&bytes[1], &address.pid, 4);
  std::memcpy(&bytes[5], &address.fd, 4);
  std::memcpy(&bytes[9], &address.bytes, 8);
  std::memcpy(&bytes[17], address.token, 16);
  return bytes;
}

Result<SharedMemoryAddress> decode(const Address& bytes) {
  if (bytes.size() != kAddressBytes || bytes[0] != kMagic)
    return error(ErrorCode::InvalidArgument, "%zu bytes that are not an address of transport shm",
                 bytes.size());
  SharedMemoryAddress address;
  std::memcpy(&address.pid, &bytes[1], 4);
  std::memcpy(&address.fd, &bytes[5], 4);
  std::memcpy(&address.bytes, &bytes[9], 8);
  std::memcpy(address.token, &bytes[17], 16);
  return address;
}

class ShmTransport final : public Transport, public ShmSource {
 public:
  ShmTransport(Waker* waker, const Log& log, std::shared_ptr<Crew> crew)
      : channels_(std::make_shared<Channels>(std::move(crew))), connector_(waker, log) {}

  [[nodiscard]] std::string name() const override { return "shm"; }
  Result<Address> listen() override;
  void connect_later(const PeerId& id, const Address& address, const std::vector<uint8_t>& secret,
                     const WaitLimit& limit, Connected connected) override;
  void forget(uint64_t communicator, int self) override { connector_.forget(communicator, self); }
  bool progress() override;
  [[nodiscard]] int poll_fd() const override { return -1; }
  [[nodiscard]] ShmSource* shm_source() override { return this; }
  [[nodiscard]] uint64_t bytes_sent() const override {
    return channels_->bytes_sent.load(std::memory_order_relaxed);
  }
  void arm() override { set_sleeping(true); }
  void disarm() override { set_sleeping(false); }

 private:
  Status begin(const PeerId& id, const Address& address, const std::vector<uint8_t>& secret,
               const WaitLimit& limit, Connected connected);
  Result<std::unique_ptr<Channel>> open(const PeerId& id, SharedMemory memory);
  void set_sleeping(bool sleeping);

  const std::shared_ptr<Channels> channels_;
  std::atomic<bool> listens_{false};
  shm::Connector connector_;
};

Result<Address> ShmTransport::listen() {
  HETCCL_ASSIGN(const SharedMemoryAddress mailbox, connector_.listen());
  listens_ = true;
  return encode(mailbox);
}

void ShmTransport::connect_later(const PeerId& id, const Address& address,
                                 const std::vector<uint8_t>& secret, const WaitLimit& limit,
                                 Connected connected) {
  const auto told = [id, ms = limit.timeout_ms,
                     connected = std::move(connected)](Result<std::unique_ptr<Channel>> made) {
    if (made.ok()) return connected(std::move(made));
    connected(made.status().with(format("connecting to rank %d over shm, within %lld ms", id.peer,
                                        static_cast<long long>(ms))));
  };
  const Status begun = begin(id, address, secret, limit, told);
  if (!begun.ok()) told(begun);
}

Status ShmTransport::begin(const PeerId& id, const Address& address,
                           const std::vector<uint8_t>& secret, const WaitLimit& limit,
                           Connected connected) {
  if (!listens_ || id.self == id.peer || secret.empty() || id.window > shm::kMaxWindow) {
    return error(ErrorCode::InvalidArgument,
                 "needs listen() before, another rank, a secret, and a window of at most %zu bytes",
                 shm::kMaxWindow);
  }
  HETCCL_ASSIGN(const SharedMemoryAddress peer, decode(address));
  return connector_.connect(
      id, peer, secret, limit, [this, id, connected = std::move(connected)](auto memory) {
        if (!memory.ok()) return connected(memory.status());
        // Report an exception too, because a caller waits.
        connected(make_or_catch([&] { return open(id, std::move(memory).value()); }));
      });
}

Result<std::unique_ptr<Channel>> ShmTransport::open(const PeerId& id, SharedMemory memory) {
  const int side = id.self < id.peer ? 0 : 1;
  const auto& segment = *reinterpret_cast<const Segment*>(memory.data());
  if (memory.bytes() != shm::bytes_with(id.window))
    return error(ErrorCode::RemoteError, "the other end runs another version of hetccl");
  RemoteWaker waker;
  const WakerAddress address = segment.sides[1 - side].waker;
  if (address.fd >= 0) {
    HETCCL_ASSIGN(waker, RemoteWaker::open(address));
  }
  return std::unique_ptr<Channel>(
      std::make_unique<ShmChannel>(id.peer, side, std::move(memory), std::move(waker), channels_));
}

bool ShmTransport::progress() {
  std::lock_guard lock(channels_->mutex);
  size_t budget = kProgressBudget;
  bool moved = false;
  for (ShmChannel* channel : channels_->all) moved |= channel->progress(&budget);
  // Start with another channel next time, so that a busy one does not take the whole budget for
  // ever.
  if (budget == 0 && channels_->all.size() > 1)
    std::rotate(channels_->all.begin(), channels_->all.begin() + 1, channels_->all.end());
  return moved;
}

void ShmTransport::set_sleeping(bool sleeping) {
  std::lock_guard lock(channels_->mutex);
  for (ShmChannel* channel : channels_->all) channel->set_sleeping(sleeping);
}

}  // namespace

Result<std::unique_ptr<Transport>> make_shm_transport(Waker* waker, const Log& log,
                                                      std::shared_ptr<Crew> crew) {
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(waker, log, std::move(crew)));
}

int score_shm(const ChannelEnd& local, const ChannelEnd& peer) {
  return local.host == peer.host && local.shares_memory && peer.shares_memory ? kShmScore : 0;
}

}  // namespace hetccl::transport
