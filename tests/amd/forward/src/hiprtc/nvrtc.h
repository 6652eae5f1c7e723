// Minimal prototypes of NVIDIA's run-time compiler.
#pragma once

#include <cstddef>

namespace forward::nvrtc {

using Program = void*;

struct Library {
  int (*create)(Program* program, const char* source, const char* name, int headers,
                const char* const* header_texts, const char* const* header_names);
  int (*destroy)(Program* program);
  int (*compile)(Program program, int options, const char* const* texts);
  int (*log_size)(Program program, std::size_t* bytes);
  int (*log)(Program program, char* text);
  int (*cubin_size)(Program program, std::size_t* bytes);
  int (*cubin)(Program program, char* image);
  int (*add_name)(Program program, const char* name);
  int (*lowered_name)(Program program, const char* name, const char** lowered);
};

/// Returns NVRTC, or null if neither the path in FORWARD_NVRTC nor a usual name loads. Thread-safe.
[[nodiscard]] const Library* library();

}  // namespace forward::nvrtc
