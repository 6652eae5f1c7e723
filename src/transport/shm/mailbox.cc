#include "transport/shm/mailbox.h"

#include <cstring>

namespace hetccl::transport::shm {

namespace {

enum SlotState : uint32_t { kFree, kWriting, kFull, kReading };

// Hashes the fields of an offer one by one, so that no padding is authenticated.
net::Mac prove(const char* role, const Offer& offer, const net::Secret& secret) {
  uint8_t text[160] = {};
  size_t length = 0;
  const auto put = [&](const void* data, size_t bytes) {
    std::memcpy(text + length, data, bytes);
    length += bytes;
  };
  put(role, std::strlen(role));
  put(&offer.communicator, sizeof offer.communicator);
  put(&offer.from, sizeof offer.from);
  put(&offer.to, sizeof offer.to);
  put(&offer.segment.pid, sizeof offer.segment.pid);
  put(&offer.segment.fd, sizeof offer.segment.fd);
  put(&offer.segment.bytes, sizeof offer.segment.bytes);
  put(offer.segment.token, sizeof offer.segment.token);
  put(&offer.bell.pid, sizeof offer.bell.pid);
  put(&offer.bell.fd, sizeof offer.bell.fd);
  put(offer.nonce, sizeof offer.nonce);
  return net::authenticate(secret, text, length);
}

}  // namespace

struct Mailbox::Slot {
  alignas(64) std::atomic<uint32_t> state;
  Offer offer;
};

// New shared memory is zero, which means a free slot.
struct Mailbox::Layout {
  WakerAddress bell;
  Slot slots[kSlots];
};

net::Mac prove_offer(const Offer& offer, const net::Secret& secret) {
  return prove("shm offer", offer, secret);
}

net::Mac prove_acceptance(const Offer& offer, const net::Secret& secret) {
  return prove("shm acceptance", offer, secret);
}

Result<Mailbox> Mailbox::create(WakerAddress bell) {
  HETCCL_ASSIGN(SharedMemory memory, SharedMemory::create(sizeof(Layout)));
  reinterpret_cast<Layout*>(memory.data())->bell = bell;
  return Mailbox(std::move(memory));
}

Result<Mailbox> Mailbox::attach(const SharedMemoryAddress& address) {
  if (address.bytes != sizeof(Layout))
    return error(ErrorCode::InvalidArgument,
                 "not the address of a mailbox of this version of hetccl");
  HETCCL_ASSIGN(SharedMemory memory, SharedMemory::attach(address));
  return Mailbox(std::move(memory));
}

WakerAddress Mailbox::bell() const {
  return reinterpret_cast<const Layout*>(memory_.data())->bell;
}

Mailbox::Slot* Mailbox::slots() const {
  return reinterpret_cast<Layout*>(memory_.data())->slots;
}

int Mailbox::post(const Offer& offer) {
  for (size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots()[i];
    uint32_t expected = kFree;
    if (!slot.state.compare_exchange_strong(expected, kWriting, std::memory_order_acquire))
      continue;
    slot.offer = offer;
    slot.state.store(kFull, std::memory_order_release);
    return static_cast<int>(i);
  }
  return -1;
}

void Mailbox::withdraw(int slot_index, const Offer& offer) {
  Slot& slot = slots()[slot_index];
  uint32_t expected = kFull;
  if (!slot.state.compare_exchange_strong(expected, kReading, std::memory_order_acquire)) return;
  const bool mine = std::memcmp(slot.offer.nonce, offer.nonce, sizeof offer.nonce) == 0;
  slot.state.store(mine ? kFree : kFull, std::memory_order_release);
}

void Mailbox::take(const std::function<bool(const Offer&)>& wants) {
  for (size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots()[i];
    uint32_t expected = kFull;
    if (slot.state.load(std::memory_order_relaxed) != kFull ||
        !slot.state.compare_exchange_strong(expected, kReading, std::memory_order_acquire))
      continue;
    const Offer offer = slot.offer;
    slot.state.store(wants(offer) ? kFree : kFull, std::memory_order_release);
  }
}

}  // namespace hetccl::transport::shm
