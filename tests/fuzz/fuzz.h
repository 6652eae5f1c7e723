// Functions that every fuzz target offers. One source makes two programs: the smoke program of
// smoke.cc, which ctest runs, and libFuzzer's (tools/fuzz).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

/// One input from a stranger. Must neither crash nor break the target's requirements on its parser.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace hetccl::fuzz {

using Bytes = std::vector<uint8_t>;

/// Inputs that the parser accepts, made by today's encoders.
std::vector<Bytes> seeds();

inline Bytes bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

/// Ends the program where the parser has broken its promise.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

/// Takes an input apart. Reads beyond its end return nothing.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}
  uint8_t byte() {
    const auto taken = take(1);
    return taken.empty() ? uint8_t{0} : taken[0];
  }
  std::span<const uint8_t> take(size_t bytes) {
    const auto taken = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::span<const uint8_t> rest() { return take(rest_.size()); }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace hetccl::fuzz
