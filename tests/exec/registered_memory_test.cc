#include "exec/registered_memory.h"

#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "device/host/host_device.h"
#include "fake/fake_device.h"
#include "fake/patience.h"

namespace hetccl::exec {
namespace {

// Counts registered memory. Copies as a card that reaches the fake device's memory does.
class Cards final : public transport::Transport {
 public:
  explicit Cards(const fake::FakeDevice* device = nullptr) : device_(device) {}
  [[nodiscard]] std::string name() const override { return "cards"; }
  Result<transport::Address> listen() override { return transport::Address(1); }
  void connect_later(const transport::PeerId&, const transport::Address&,
                     const std::vector<uint8_t>&, const WaitLimit&, Connected) override {}
  void forget(uint64_t, int) override {}
  bool progress() override { return false; }
  [[nodiscard]] int poll_fd() const override { return -1; }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] uint64_t bytes_sent() const override { return 0; }

  [[nodiscard]] bool registers() const override { return true; }
  Result<std::unique_ptr<transport::Registration>> register_memory(
      const transport::Memory& memory) override {
    ++asked;
    if (refuses) return error(ErrorCode::SystemError, "it has no room");
    return std::unique_ptr<transport::Registration>(std::make_unique<Known>(known, memory.data));
  }
  [[nodiscard]] size_t n_cards() const override { return 2; }
  Status copy_by_card(size_t card, void* to, const void* from, size_t bytes,
                      const WaitLimit&) override {
    if (card == broken) return {};
    std::memcpy(device_->reach(to), device_->reach(const_cast<void*>(from)), bytes);
    return {};
  }

  struct Known final : transport::Registration {
    Known(std::multiset<std::byte*>& all, std::byte* data) : in(all), at(all.insert(data)) {}
    ~Known() override { in.erase(at); }
    std::multiset<std::byte*>& in;
    const std::multiset<std::byte*>::iterator at;
  };
  std::multiset<std::byte*> known;
  size_t asked = 0, broken = 9;
  bool refuses = false;

 private:
  const fake::FakeDevice* const device_;
};

using Holds = std::vector<RegisteredMemory::Hold>;

TEST_CASE("memory is registered once, and anew where another allocation lies at its place") {
  const auto device = device::make_host_device();
  Cards cards;
  RegisteredMemory memory(*device, {&cards});
  void* const first = device->allocate(10'000).value();
  for (int i = 0; i < 100; ++i) {
    Holds holds;
    CHECK(memory.hold(static_cast<std::byte*>(first) + 5, 100, holds));
    CHECK(holds.size() == 1);
  }
  CHECK(cards.asked == 1);
  Holds held;
  CHECK(memory.hold(first, 10'000, held));
  device->free(first);
  void* const second = device->allocate(10'000).value();
  Holds holds;
  CHECK(memory.hold(second, 10'000, holds));
  CHECK(cards.asked == 2);
  if (second == first) CHECK(cards.known.size() == 2);  // a call holds the first one
  held.clear();
  CHECK(cards.known.contains(static_cast<std::byte*>(second)));
  device->free(second);
}

TEST_CASE("memory that nothing tells of is unknown, and so is what reaches beyond an allocation") {
  const auto device = device::make_host_device();
  Cards cards;
  RegisteredMemory memory(*device, {&cards});
  std::vector<std::byte> own(5000);
  Holds holds;
  CHECK_FALSE(memory.hold(own.data(), own.size(), holds));
  CHECK(memory.hold(own.data(), 0, holds));
  void* const made = device->allocate(5000).value();
  CHECK_FALSE(memory.hold(made, 100'000'000, holds));
  {
    const auto promise = memory.keep(own.data(), own.size());
    REQUIRE(promise.ok());
    CHECK(memory.hold(own.data() + 1, 4000, holds));
    CHECK_FALSE(memory.hold(own.data() + 1, 5000, holds));
  }
  CHECK_FALSE(memory.hold(own.data(), own.size(), holds));
  holds.clear();
  CHECK(cards.known.size() == 1);
  device->free(made);
}

TEST_CASE("what is refused is not asked for again, and freed memory is let go of") {
  const auto device = device::make_host_device();
  Cards cards;
  RegisteredMemory memory(*device, {&cards});
  void* const made = device->allocate(5000).value();
  Holds holds;
  cards.refuses = true;
  for (int i = 0; i < 5; ++i) CHECK_FALSE(memory.hold(made, 100, holds));
  CHECK(cards.asked == 1);
  CHECK(memory.why_unknown(made).message().find("no room") != std::string::npos);
  cards.refuses = false;
  std::vector<void*> many;
  for (int i = 0; i < 5000; ++i) {
    many.push_back(device->allocate(4096).value());
    CHECK(memory.hold(many.back(), 4096, holds));
    holds.clear();
  }
  CHECK(cards.known.size() <= 4097);
  for (void* one : many) device->free(one);
  for (int i = 0; i < 4 * 5000; ++i) {
    memory.hold(made, 1, holds);
    holds.clear();
  }
  // The refusal was forgotten meanwhile, so the cards are asked again.
  CHECK(cards.known == std::multiset{static_cast<std::byte*>(made)});
  device->free(made);
}

TEST_CASE("a card that does not reach the device is found out, and the device's memory not given") {
  auto device = std::move(fake::FakeDevice::create({.max_delay_us = 5})).value();
  void* const made = device->allocate(5000).value();
  Holds holds;
  Cards broken(device.get());
  broken.broken = 1;
  {
    RegisteredMemory memory(*device, {&broken});
    CHECK(memory.why_not(broken) == "HETCCL_RDMA_GPU=0");
    memory.try_cards(fake::kHangMs);
    CHECK(memory.why_not(broken).find("sees other bytes") != std::string::npos);
    const size_t asked = broken.asked;
    CHECK(memory.hold(made, 100, holds));  // as no transport is to know it
    CHECK(broken.asked == asked);
  }
  Cards right(device.get());
  RegisteredMemory memory(*device, {&right});
  memory.try_cards(fake::kHangMs);
  CHECK(memory.reaches(right));
  CHECK(memory.hold(made, 100, holds));
  CHECK(right.known.contains(static_cast<std::byte*>(made)));
  holds.clear();
  device->free(made);
}

}  // namespace
}  // namespace hetccl::exec
