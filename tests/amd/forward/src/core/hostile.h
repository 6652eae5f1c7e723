// Hostile modes: each word of FORWARD_HOSTILE makes the library behave like a worse AMD platform.
#pragma once

namespace forward {

enum class Hostile {
  kNoWaitValue,
  kWaitValueSignalOnly,
  kBlockingHostFunctions,
  kSlowEnqueue,
  kFnuz,
  kNoSplitRegister,
  kOneQueue,
  kNonCoherent,
};

/// Returns whether FORWARD_HOSTILE names `mode`. The environment is read once, at load. A word that
/// is no mode ends the process with status 2 at load. Thread-safe.
[[nodiscard]] bool hostile(Hostile mode);

}  // namespace forward
