#include "transport/extent.h"

#include <doctest/doctest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace hetccl::transport {

namespace {

std::string text_of(std::span<const iovec> parts) {
  std::string text;
  for (const iovec& part : parts)
    text.append(static_cast<const char*>(part.iov_base), part.iov_len);
  return text;
}

}  // namespace

TEST_CASE("an extent describes and passes any part of a message") {
  std::string text = "the quick brown fox jumps over the lazy dog";
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<iovec> list;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = std::min<size_t>(random() % 6, text.size() - at);
      list.push_back({text.data() + at, bytes});
      at += bytes;
    }
    for (size_t n = random() % 3; n > 0; --n) list.push_back({nullptr, 0});
    Parcel parcel;
    parcel.bytes = text.size();
    if (round % 4 == 0) {
      parcel.data = text.data();
    } else {
      parcel.list = list;
    }
    const size_t offset = random() % (text.size() + 1);
    size_t left = random() % (text.size() - offset + 1);
    Extent extent(parcel, offset, left);
    for (size_t at = offset;;) {
      CHECK(extent.bytes() == left);
      CHECK(extent.front().empty() == (left == 0));
      std::array<iovec, 4> parts{};
      const size_t most = random() % 12;
      size_t bytes = 0;
      const size_t n = extent.describe(parts, most, &bytes);
      const auto described = std::span(parts).first(n);
      CHECK(text_of(described) == text.substr(at, bytes));
      const bool all = bytes == std::min(most, left);  // or there were more pieces than room
      CHECK((all || n == parts.size()));
      if (left == 0) break;
      const size_t passed = random() % (left + 1);
      extent.advance(passed);
      at += passed;
      left -= passed;
    }
  }
}

}  // namespace hetccl::transport
