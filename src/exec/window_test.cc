#include "exec/window.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "exec/testing.h"

namespace hetccl::exec {
namespace {

struct Message {
  std::byte* data;
  size_t bytes;
  uint32_t number;
};

bool overlap(const Message& a, const Message& b) {
  return a.data < b.data + b.bytes && b.data < a.data + a.bytes;
}

}  // namespace

TEST_CASE("both ends place messages alike, and none over one that may be unread") {
  std::vector<std::byte> memory(64 << 10);
  std::mt19937_64 random(3);
  for (const size_t most : {600, 5000, 32 << 10}) {
    WindowRing writer(memory), reader(memory);
    std::vector<Message> unread;
    uint32_t needed = 0;
    for (uint32_t n = 1; n <= 5000; ++n) {
      const size_t bytes = random() % 10 == 0 ? 0 : random() % (most + 1);
      REQUIRE(writer.fits(bytes));
      const WindowRing::Place here = writer.place(bytes), there = reader.place(bytes);
      REQUIRE(here.data == there.data);
      REQUIRE(writer.number() == n);
      REQUIRE(here.needed < n);
      REQUIRE(here.needed >= needed);
      needed = here.needed;
      std::erase_if(unread, [&](const Message& one) { return one.number <= needed; });
      const Message message{here.data, bytes, n};
      REQUIRE(here.data + bytes <= memory.data() + memory.size());
      CHECK(std::none_of(unread.begin(), unread.end(),
                         [&](const Message& one) { return overlap(one, message); }));
      if (bytes > 0) unread.push_back(message);
    }
  }
  CHECK_FALSE(WindowRing(memory).fits((32 << 10) + 1));
}

TEST_CASE("so many slices may lie unread as a ring says") {
  constexpr size_t kRing = 64 << 10;
  std::vector<std::byte> memory(kRing);
  std::mt19937_64 random(4);
  CHECK(WindowRing(memory).slices_unread(kRing / 2) == 0);
  CHECK(WindowRing(memory).slices_unread(kRing / 3) == 1);
  CHECK(WindowRing(memory).slices_unread(kRing / 5 + 1) == 2);
  for (const size_t slice : {kRing / 2, kRing / 3, kRing / 4, kRing / 5, size_t{3000}}) {
    WindowRing ring(memory);
    const size_t kept = ring.slices_unread(slice);
    std::vector<uint32_t> last;  // message of each slice
    for (int k = 0; k < 3000; ++k) {
      // Slices of any sizes, in one to three messages.
      size_t left = random() % 4 == 0 ? random() % (slice + 1) : slice;
      for (int message = 0; message < 3; ++message) {
        const size_t part = message == 2 ? left : random() % (left + 1);
        const size_t bytes = part / WindowRing::kGrain * WindowRing::kGrain;
        left -= bytes;
        const uint32_t needed = ring.place(bytes).needed;
        if (last.size() > kept) CHECK(needed <= last[last.size() - 1 - kept]);
        if (last.size() <= kept) CHECK(needed == 0);
      }
      last.push_back(ring.number());
    }
  }
}

TEST_CASE("a window carries counts from end to end, and lets go of waits") {
  testing::QueueDevice device;
  std::vector<std::byte> memory(1 << 20);
  {
    const auto low = std::move(Window::open(device, memory, true)).value();
    const auto high = std::move(Window::open(device, memory, false)).value();
    CHECK(low->out.place(100).data == high->in.place(100).data);
    CHECK(low->in.place(100).data == high->out.place(100).data);
    CHECK(low->out.place(1).data != low->in.place(1).data);
    CHECK_FALSE(low->exchange());
    for (int i = 0; i < 4; ++i) low->out.place(100);
    for (int i = 0; i < 5; ++i) high->count_read();
    CHECK(high->exchange());
    CHECK_FALSE(high->exchange());
    CHECK(low->exchange());
    CHECK(low->read_there().word.load() == 5);
    CHECK(high->read_there().word.load() == 0);
    CHECK_FALSE(low->exchange());
    // More than there is, or less than was: nobody's count.
    auto& count = *reinterpret_cast<std::atomic<uint32_t>*>(memory.data());
    for (const uint32_t hostile : {7U, 4U, 0x80000004U, 0xffffffffU}) {
      REQUIRE(count.exchange(hostile) != hostile);
      CHECK_FALSE(low->exchange());
      CHECK(low->read_there().word.load() == 5);
    }
    CHECK_FALSE(high->abandoned());
    low->abandon();
    CHECK(high->abandoned());
    CHECK_FALSE(low->abandoned());
    CHECK(low->read_there().word.load() == 5);
    low->release_waits();
    CHECK(low->read_there().reached(5 + device::kFlagAborted));
    CHECK_FALSE(high->read_there().reached(1));
  }
  CHECK(device.blocks == 0);
}

}  // namespace hetccl::exec
