// The few names that cuda_runtime_api.h takes from a header of NVIDIA's compiler, which its wheel
// lacks: to a compiler of the host they mean nothing.
#pragma once

#define __host__
#define __device__
#define __global__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDA_CB
