#include "base/printable.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace hetccl {

namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// Returns the first character of `text`, which must not be empty (Unicode 15, table 3-7: no
// overlong forms, no surrogates). Bytes that are no UTF-8 count one by one.
Character first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {lead};
  uint32_t code = lead & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {lead};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {lead};
  return {code, bytes, true};
}

bool is_plain(uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool reorders = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
                        code == 0x200e || code == 0x200f || code == 0x061c;
  const bool breaks_line = code == 0x2028 || code == 0x2029;
  return !control && !reorders && !breaks_line;
}

}  // namespace

size_t print_into(char* out, size_t room, std::string_view text) {
  size_t used = 0;
  while (!text.empty()) {
    const Character next = first_of(text);
    char escaped[8];
    std::string_view printed = text.substr(0, next.bytes);
    if (!next.valid || !is_plain(next.code)) {
      const char* pattern = next.valid && next.code >= 0x80 ? "\\u%04x" : "\\x%02x";
      const int length = std::snprintf(escaped, sizeof escaped, pattern, next.code);
      printed = next.code == '\n' ? "\\n" : std::string_view(escaped, static_cast<size_t>(length));
    }
    if (printed.size() > room - used) break;
    std::memcpy(out + used, printed.data(), printed.size());
    used += printed.size();
    text.remove_prefix(next.bytes);
  }
  return used;
}

std::string printable(std::string_view text, size_t most) {
  constexpr size_t kLongestPerByte = 4;  // "\xff"
  std::string printed(std::min(text.size() * kLongestPerByte, most), '\0');
  printed.resize(print_into(printed.data(), printed.size(), text));
  return printed;
}

}  // namespace hetccl
