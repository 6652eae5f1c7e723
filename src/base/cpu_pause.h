// Pauses a core between two looks at a word that another core is about to write.
#pragma once

namespace hetccl {

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace hetccl
