// AMD's own declarations. Every HIP function here is defined against these prototypes.
#pragma once

#include <hip/hip_runtime_api.h>

#ifndef __HIP_PLATFORM_AMD__
#error "the library is compiled against AMD's headers for AMD's platform"
#endif
