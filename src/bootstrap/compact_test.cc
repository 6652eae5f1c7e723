#include "bootstrap/compact.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

namespace hetccl::bootstrap {
namespace {

Bytes random_bytes(size_t bytes) {
  std::mt19937 random(5);
  Bytes made(bytes);
  for (uint8_t& byte : made) byte = static_cast<uint8_t>(random());
  return made;
}

Bytes repeated(size_t bytes) {
  Bytes made;
  while (made.size() < bytes)
    for (const char c : "rank " + std::to_string(made.size()) + " of host a;") made.push_back(c);
  made.resize(bytes);
  return made;
}

TEST_CASE("what is alike becomes short, what is not stays, and both come back") {
  for (const size_t bytes : {0UL, 1UL, 1000UL, 1024UL, 100'000UL, 3'000'000UL}) {
    CHECK(expand(compact(random_bytes(bytes)), bytes) == random_bytes(bytes));
    CHECK(expand(compact(repeated(bytes)), bytes) == repeated(bytes));
  }
  CHECK(compact(random_bytes(100'000)).size() == 100'000);
  CHECK(compact(repeated(100'000)).size() < 25'000);
}

TEST_CASE("what does not expand to the promised length is refused") {
  const Bytes packed = compact(repeated(100'000));
  for (const size_t promised : {0UL, 1UL, packed.size() - 1, 99'999UL, 100'001UL, 10'000'000UL})
    CHECK_FALSE(expand(packed, promised).has_value());
  for (size_t cut = 1; cut < packed.size(); cut += 97)
    CHECK_FALSE(expand(Bytes(packed.begin(), packed.end() - static_cast<ptrdiff_t>(cut)), 100'000)
                    .has_value());
  Bytes longer = packed;
  longer.push_back(0);
  CHECK_FALSE(expand(longer, 100'000).has_value());
  std::mt19937 random(6);
  for (int i = 0; i < 500; ++i) {
    Bytes damaged = packed;
    damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1U << random() % 8);
    const auto expanded = expand(damaged, 100'000);
    if (expanded) CHECK(expanded->size() == 100'000);
  }
}

}  // namespace
}  // namespace hetccl::bootstrap
