// The AMD architecture that the forwarded device claims to be.
#pragma once

#include <string>
#include <string_view>

namespace forward {

struct Architecture {
  std::string name;  // As in gcnArchName, with target features if FORWARD_ARCH has them.
  int major = 0;
  int minor = 0;
  int warp_size = 0;  // 64 on gfx9, 32 on gfx10, gfx11 and gfx12.
};

/// Returns whether `name`, with or without `:feature+` suffixes, is an AMD architecture.
[[nodiscard]] bool known_architecture(std::string_view name);

/// Returns the parts of `name`, which must be a known architecture.
[[nodiscard]] Architecture describe_architecture(std::string_view name);

/// Returns the architecture in FORWARD_ARCH (default gfx942; always gfx942 in mode fnuz). An
/// unknown name ends the process with status 2. Thread-safe.
[[nodiscard]] const Architecture& claimed_architecture();

}  // namespace forward
