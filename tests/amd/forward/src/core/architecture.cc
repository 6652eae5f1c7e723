#include "core/architecture.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/hostile.h"

namespace forward {
namespace {

constexpr std::string_view kKnown[] = {
    "gfx900",  "gfx902",  "gfx904",  "gfx906",  "gfx908",  "gfx909",  "gfx90a",
    "gfx90c",  "gfx940",  "gfx941",  "gfx942",  "gfx950",  "gfx1010", "gfx1011",
    "gfx1012", "gfx1013", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034",
    "gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150",
    "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
};

Architecture read_environment() {
  const char* value = std::getenv("FORWARD_ARCH");
  if (hostile(Hostile::kFnuz) || value == nullptr) value = "gfx942";
  if (!known_architecture(value)) {
    std::fprintf(stderr, "forward: FORWARD_ARCH '%s' is no AMD architecture\n", value);
    _exit(2);
  }
  return describe_architecture(value);
}

}  // namespace

bool known_architecture(std::string_view name) {
  const std::string_view plain = name.substr(0, name.find(':'));
  for (const std::string_view known : kKnown) {
    if (known == plain) return true;
  }
  return false;
}

// The last digit of an architecture's name is its stepping, in hexadecimal.
Architecture describe_architecture(std::string_view name) {
  const std::string digits(name.substr(3, name.find(':') - 3));
  Architecture result;
  result.name = name;
  result.major = std::atoi(digits.substr(0, digits.size() - 2).c_str());
  result.minor = digits[digits.size() - 2] - '0';
  result.warp_size = result.major == 9 ? 64 : 32;
  return result;
}

const Architecture& claimed_architecture() {
  static const Architecture* instance = new Architecture(read_environment());
  return *instance;
}

}  // namespace forward
