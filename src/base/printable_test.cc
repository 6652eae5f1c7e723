#include "base/printable.h"

#include <doctest/doctest.h>

namespace hetccl {
namespace {

std::string shown(std::string_view text) {
  return printable(text, 1000);
}

TEST_CASE("what a terminal would act on is escaped, and other UTF-8 stays") {
  CHECK(shown("rank 2 (host b, pid 7)\\") == "rank 2 (host b, pid 7)\\");
  CHECK(shown("\x1b[2J\x1b]0;title\a") == "\\x1b[2J\\x1b]0;title\\x07");
  CHECK(shown("a\nhetccl [rank 0] error: b\r\t\x7f") ==
        "a\\nhetccl [rank 0] error: b\\x0d\\x09\\x7f");
  CHECK(shown(std::string_view("\0x", 2)) == "\\x00x");
  CHECK(shown("Zürich 東京 🚀 \u00a0") == "Zürich 東京 🚀 \u00a0");
  CHECK(shown("\u009b31m") == "\\u009b31m");
  CHECK(shown("\u202egpj\u2066\u2028") == "\\u202egpj\\u2066\\u2028");
}

TEST_CASE("bytes that are no UTF-8 are escaped one by one") {
  CHECK(shown("\xff\xfe") == "\\xff\\xfe");
  CHECK(shown("\xc3(") == "\\xc3(");
  CHECK(shown("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(shown("\xe0\x80\x8a") == "\\xe0\\x80\\x8a");           // overlong
  CHECK(shown("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(shown("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  CHECK(shown("ab\xe6\x9d") == "ab\\xe6\\x9d");                // cut off
}

TEST_CASE("the length is bounded, and characters stay whole") {
  CHECK(printable(std::string(1000, '\x01'), 10) == "\\x01\\x01");
  CHECK(printable("ab東京", 7) == "ab東");
  CHECK(printable("東", 2).empty());
  CHECK(printable("", 0).empty());
  CHECK(printable("abc", 0).empty());
}

}  // namespace
}  // namespace hetccl
