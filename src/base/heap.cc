#include "base/heap.h"

#include <malloc.h>

namespace hetccl {

void return_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace hetccl
