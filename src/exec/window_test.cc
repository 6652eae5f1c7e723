#include "exec/window.h"

#include <doctest/doctest.h>

#include <vector>

#include "exec/testing.h"

namespace hetccl::exec {
namespace {

std::byte* placed_out(Window& window, size_t bytes) {
  return window.out_memory(window.out.place(bytes).offset);
}
std::byte* placed_in(Window& window, size_t bytes) {
  return window.in_memory(window.in.place(bytes).offset);
}

}  // namespace

TEST_CASE("a window's rings lie in its memory, behind the head and apart") {
  testing::QueueDevice device;
  std::vector<std::byte> memory(1 << 16);
  const auto low = std::move(Window::open(device, memory, true)).value();
  const auto high = std::move(Window::open(device, memory, false)).value();
  const size_t ring = low->ring_bytes();
  CHECK(ring == lower::Ring::bytes_of_window(memory.size()));
  CHECK(low->out_memory(0) == memory.data() + lower::Ring::kHead);
  CHECK(low->in_memory(0) == low->out_memory(ring));
  CHECK(high->in_memory(7) == low->out_memory(7));
  CHECK(high->out_memory(7) == low->in_memory(7));
  CHECK(low->in_memory(ring) <= memory.data() + memory.size());
}

TEST_CASE("a window carries counts from end to end, and lets go of waits") {
  testing::QueueDevice device;
  std::vector<std::byte> memory(1 << 20);
  {
    const auto low = std::move(Window::open(device, memory, true)).value();
    const auto high = std::move(Window::open(device, memory, false)).value();
    CHECK(placed_out(*low, 100) == placed_in(*high, 100));
    CHECK(placed_in(*low, 100) == placed_out(*high, 100));
    CHECK(placed_out(*low, 1) != placed_in(*low, 1));
    CHECK_FALSE(low->exchange());
    for (int i = 0; i < 4; ++i) low->out.place(100);
    for (int i = 0; i < 5; ++i) high->count_read();
    CHECK(high->exchange());
    CHECK_FALSE(high->exchange());
    CHECK(low->exchange());
    CHECK(low->read_there().word.load() == 5);
    CHECK(high->read_there().word.load() == 0);
    CHECK_FALSE(low->exchange());
    // Counts above the messages sent, or below an earlier count, are ignored.
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
