// Refuses to load where the environment asks for the library without split and registration.
#include <unistd.h>

#include <cstdio>

#include "core/hostile.h"

namespace {

[[gnu::constructor]] void refuse_wrong_library() {
  if (!forward::hostile(forward::Hostile::kNoSplitRegister)) return;
  std::fprintf(stderr,
               "forward: for the word no-split-register, load no-split-register/"
               "librccl.so.1 instead of this library\n");
  _exit(2);
}

}  // namespace
