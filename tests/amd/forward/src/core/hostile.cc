#include "core/hostile.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace forward {
namespace {

struct Word {
  std::string_view text;
  Hostile mode;
};

constexpr Word kWords[] = {
    {"no-wait-value", Hostile::kNoWaitValue},
    {"wait-value-signal-only", Hostile::kWaitValueSignalOnly},
    {"blocking-host-functions", Hostile::kBlockingHostFunctions},
    {"slow-enqueue", Hostile::kSlowEnqueue},
    {"fnuz", Hostile::kFnuz},
    {"no-split-register", Hostile::kNoSplitRegister},
    {"one-queue", Hostile::kOneQueue},
    {"non-coherent", Hostile::kNonCoherent},
};

[[noreturn]] void refuse(std::string_view text) {
  std::fprintf(stderr, "forward: FORWARD_HOSTILE has the unknown word '%.*s'; known words:",
               static_cast<int>(text.size()), text.data());
  for (const Word& word : kWords) std::fprintf(stderr, " %s", word.text.data());
  std::fprintf(stderr, "\n");
  _exit(2);
}

unsigned bit_of(std::string_view text) {
  for (const Word& word : kWords) {
    if (word.text == text) return 1U << static_cast<unsigned>(word.mode);
  }
  refuse(text);
}

unsigned parse() {
  const char* value = std::getenv("FORWARD_HOSTILE");
  std::string_view rest = value == nullptr ? "" : value;
  unsigned modes = 0;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    modes |= bit_of(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return modes;
}

unsigned modes() {
  static const unsigned parsed = parse();
  return parsed;
}

// A misspelt mode must stop the process before it computes a result in the wrong mode.
[[gnu::constructor]] void parse_at_load() {
  (void)modes();
}

}  // namespace

bool hostile(Hostile mode) {
  return (modes() >> static_cast<unsigned>(mode) & 1U) != 0;
}

}  // namespace forward
