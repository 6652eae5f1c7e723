#include "base/copy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace hetccl {

TEST_CASE("a copy past the caches is a copy, of any length and alignment") {
  std::vector<unsigned char> source(70'000), target(source.size());
  std::iota(source.begin(), source.end(), 0);
  for (const size_t from : {0, 1, 16, 63})
    for (const size_t to : {0, 1, 8, 63})
      for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 1000, 65'536, 69'000}) {
        std::fill(target.begin(), target.end(), 0xee);
        copy_past_caches(target.data() + to, source.data() + from, bytes);
        std::vector<unsigned char> expected(source.size(), 0xee);
        std::copy_n(source.begin() + static_cast<long>(from), bytes,
                    expected.begin() + static_cast<long>(to));
        CHECK(target == expected);
      }
}

}  // namespace hetccl
