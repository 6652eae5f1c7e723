#include "lower/ring.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace hetccl::lower {
namespace {

struct Written {
  size_t offset;
  size_t bytes;
  uint32_t number;
};

bool overlap(const Written& a, const Written& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

TEST_CASE("both ends place messages alike, and none over one that may be unread") {
  constexpr size_t kBytes = 64 << 10;
  std::mt19937_64 random(3);
  for (const size_t most : {600, 5000, 32 << 10}) {
    Ring writer(kBytes), reader(kBytes);
    std::vector<Written> unread;
    uint32_t needed = 0;
    for (uint32_t n = 1; n <= 5000; ++n) {
      const size_t bytes = random() % 10 == 0 ? 0 : random() % (most + 1);
      REQUIRE(Ring::fits(bytes, kBytes));
      const Ring::Placement here = writer.place(bytes), there = reader.place(bytes);
      REQUIRE(here.offset == there.offset);
      REQUIRE(here.needed == there.needed);
      REQUIRE(writer.number() == n);
      REQUIRE(here.needed.value_or(0) < n);
      REQUIRE(here.needed.value_or(0) >= needed);
      REQUIRE(here.offset % Ring::kGrain == 0);
      needed = here.needed.value_or(0);
      std::erase_if(unread, [&](const Written& one) { return one.number <= needed; });
      const Written message{here.offset, bytes, n};
      REQUIRE(here.offset + bytes <= kBytes);
      CHECK(std::none_of(unread.begin(), unread.end(),
                         [&](const Written& one) { return overlap(one, message); }));
      if (bytes > 0) unread.push_back(message);
    }
  }
  CHECK_FALSE(Ring::fits((32 << 10) + 1, kBytes));
}

TEST_CASE("a message waits for the one that it overwrites, also where the count begins anew") {
  constexpr size_t kBytes = 64 << 10;
  const uint32_t first = UINT32_MAX - 5;
  Ring ring(kBytes, first);
  for (uint32_t n = 1; n <= 12; ++n) {
    CAPTURE(n);
    const Ring::Placement placed = ring.place(kBytes / 2);  // two messages fit
    CHECK(placed.needed.has_value() == (n > 2));
    if (n > 2) CHECK(placed.needed.value() == first + n - 2);  // wraps to 0 at message 8
    CHECK(ring.number() == first + n);
  }
}

TEST_CASE("so many slices may lie unread as a ring says") {
  constexpr size_t kRing = 64 << 10;
  std::mt19937_64 random(4);
  CHECK(Ring::slices_unread(kRing / 2, kRing) == 0);
  CHECK(Ring::slices_unread(kRing / 3, kRing) == 1);
  CHECK(Ring::slices_unread(kRing / 5 + 1, kRing) == 2);
  for (const size_t slice : {kRing / 2, kRing / 3, kRing / 4, kRing / 5, size_t{3000}}) {
    Ring ring(kRing);
    const size_t kept = Ring::slices_unread(slice, kRing);
    std::vector<uint32_t> last;  // last message of each slice
    for (int k = 0; k < 3000; ++k) {
      // Slices of random sizes, in one to three messages.
      size_t left = random() % 4 == 0 ? random() % (slice + 1) : slice;
      for (int message = 0; message < 3; ++message) {
        const size_t part = message == 2 ? left : random() % (left + 1);
        const size_t bytes = part / Ring::kGrain * Ring::kGrain;
        left -= bytes;
        const uint32_t needed = ring.place(bytes).needed.value_or(0);
        if (last.size() > kept) CHECK(needed <= last[last.size() - 1 - kept]);
        if (last.size() <= kept) CHECK(needed == 0);
      }
      last.push_back(ring.number());
    }
  }
}

TEST_CASE("a window is a head and two rings of whole grains") {
  CHECK(Ring::bytes_of_window(0) == 0);
  CHECK(Ring::bytes_of_window(Ring::kHead) == 0);
  CHECK(Ring::bytes_of_window(Ring::kHead + 2 * Ring::kGrain - 1) == 0);
  CHECK(Ring::bytes_of_window(Ring::kHead + 2 * Ring::kGrain) == Ring::kGrain);
  CHECK(Ring::bytes_of_window(1 << 20) == (1 << 19) - Ring::kHead / 2);
  CHECK(Ring::room(0) == 0);
  CHECK(Ring::room(1) == Ring::kGrain);
  CHECK(Ring::room(Ring::kGrain) == Ring::kGrain);
}

}  // namespace hetccl::lower
