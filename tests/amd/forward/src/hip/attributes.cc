#include "hip/attributes.h"

#include <climits>

#include "core/architecture.h"
#include "core/hostile.h"
#include "hip/call.h"

namespace forward {
namespace {

struct Pair {
  hipDeviceAttribute_t hip;
  int cuda;
};

// NVIDIA's driver answers these attributes.
constexpr Pair kForwarded[] = {
    {hipDeviceAttributeEccEnabled, 32},
    {hipDeviceAttributeAccessPolicyMaxWindowSize, 109},
    {hipDeviceAttributeAsyncEngineCount, 40},
    {hipDeviceAttributeCanMapHostMemory, 19},
    {hipDeviceAttributeCanUseHostPointerForRegisteredMem, 91},
    {hipDeviceAttributeClockRate, 13},
    {hipDeviceAttributeComputePreemptionSupported, 90},
    {hipDeviceAttributeConcurrentKernels, 31},
    {hipDeviceAttributeConcurrentManagedAccess, 89},
    {hipDeviceAttributeCooperativeLaunch, 95},
    {hipDeviceAttributeCooperativeMultiDeviceLaunch, 96},
    {hipDeviceAttributeDeviceOverlap, 15},
    {hipDeviceAttributeDirectManagedMemAccessFromHost, 101},
    {hipDeviceAttributeGlobalL1CacheSupported, 79},
    {hipDeviceAttributeHostNativeAtomicSupported, 86},
    {hipDeviceAttributeIntegrated, 18},
    {hipDeviceAttributeIsMultiGpuBoard, 84},
    {hipDeviceAttributeKernelExecTimeout, 17},
    {hipDeviceAttributeL2CacheSize, 38},
    {hipDeviceAttributeLocalL1CacheSupported, 80},
    {hipDeviceAttributeManagedMemory, 83},
    {hipDeviceAttributeMaxBlocksPerMultiProcessor, 106},
    {hipDeviceAttributeMaxBlockDimX, 2},
    {hipDeviceAttributeMaxBlockDimY, 3},
    {hipDeviceAttributeMaxBlockDimZ, 4},
    {hipDeviceAttributeMaxGridDimX, 5},
    {hipDeviceAttributeMaxGridDimY, 6},
    {hipDeviceAttributeMaxGridDimZ, 7},
    {hipDeviceAttributeMaxSurface1D, 55},
    {hipDeviceAttributeMaxSurface1DLayered, 61},
    {hipDeviceAttributeMaxSurface2D, 56},
    {hipDeviceAttributeMaxSurface2DLayered, 63},
    {hipDeviceAttributeMaxSurface3D, 58},
    {hipDeviceAttributeMaxSurfaceCubemap, 66},
    {hipDeviceAttributeMaxSurfaceCubemapLayered, 67},
    {hipDeviceAttributeMaxTexture1DWidth, 21},
    {hipDeviceAttributeMaxTexture1DLayered, 42},
    {hipDeviceAttributeMaxTexture1DLinear, 69},
    {hipDeviceAttributeMaxTexture1DMipmap, 77},
    {hipDeviceAttributeMaxTexture2DWidth, 22},
    {hipDeviceAttributeMaxTexture2DHeight, 23},
    {hipDeviceAttributeMaxTexture2DGather, 45},
    {hipDeviceAttributeMaxTexture2DLayered, 27},
    {hipDeviceAttributeMaxTexture2DLinear, 70},
    {hipDeviceAttributeMaxTexture2DMipmap, 73},
    {hipDeviceAttributeMaxTexture3DWidth, 24},
    {hipDeviceAttributeMaxTexture3DHeight, 25},
    {hipDeviceAttributeMaxTexture3DDepth, 26},
    {hipDeviceAttributeMaxTexture3DAlt, 47},
    {hipDeviceAttributeMaxTextureCubemap, 52},
    {hipDeviceAttributeMaxTextureCubemapLayered, 53},
    {hipDeviceAttributeMaxThreadsDim, 2},
    {hipDeviceAttributeMaxThreadsPerBlock, 1},
    {hipDeviceAttributeMaxThreadsPerMultiProcessor, 39},
    {hipDeviceAttributeMaxPitch, 11},
    {hipDeviceAttributeMemoryBusWidth, 37},
    {hipDeviceAttributeMemoryClockRate, 36},
    {hipDeviceAttributeMultiGpuBoardGroupID, 85},
    {hipDeviceAttributeMultiprocessorCount, 16},
    {hipDeviceAttributePageableMemoryAccess, 88},
    {hipDeviceAttributePageableMemoryAccessUsesHostPageTables, 100},
    {hipDeviceAttributePciBusId, 33},
    {hipDeviceAttributePciDeviceId, 34},
    {hipDeviceAttributePciDomainID, 50},
    {hipDeviceAttributePersistingL2CacheMaxSize, 108},
    {hipDeviceAttributeMaxRegistersPerBlock, 12},
    {hipDeviceAttributeMaxRegistersPerMultiprocessor, 82},
    {hipDeviceAttributeReservedSharedMemPerBlock, 111},
    {hipDeviceAttributeMaxSharedMemoryPerBlock, 8},
    {hipDeviceAttributeSharedMemPerBlockOptin, 97},
    {hipDeviceAttributeSharedMemPerMultiprocessor, 81},
    {hipDeviceAttributeSingleToDoublePrecisionPerfRatio, 87},
    {hipDeviceAttributeStreamPrioritiesSupported, 78},
    {hipDeviceAttributeSurfaceAlignment, 30},
    {hipDeviceAttributeTccDriver, 35},
    {hipDeviceAttributeTextureAlignment, 14},
    {hipDeviceAttributeTexturePitchAlignment, 51},
    {hipDeviceAttributeTotalConstantMemory, 9},
    {hipDeviceAttributeUnifiedAddressing, 41},
    {hipDeviceAttributeMemoryPoolsSupported, 115},
    {hipDeviceAttributeVirtualMemoryManagementSupported, 102},
    {hipDeviceAttributeHostRegisterSupported, 99},
    {hipDeviceAttributeMemoryPoolSupportedHandleTypes, 119},
    {hipDeviceAttributeMaxSharedMemoryPerMultiprocessor, 81},
    {hipDeviceAttributePhysicalMultiProcessorCount, 16},
    // NVIDIA's 64-bit stream memory operations imply the 32-bit ones.
    {hipDeviceAttributeCanUseStreamWaitValue, 122},
};

// AMD's header assigns most attributes by position; these numbers pin the positions.
static_assert(hipDeviceAttributeEccEnabled == 0);
static_assert(hipDeviceAttributeComputeMode == 6);
static_assert(hipDeviceAttributeComputeCapabilityMajor == 23);
static_assert(hipDeviceAttributeComputeCapabilityMinor == 61);
static_assert(hipDeviceAttributeMultiprocessorCount == 63);
static_assert(hipDeviceAttributePciBusId == 67);
static_assert(hipDeviceAttributePciDomainID == 69);
static_assert(hipDeviceAttributeWarpSize == 87);
static_assert(hipDeviceAttributeMemoryPoolSupportedHandleTypes == 91);
static_assert(hipDeviceAttributeClockInstructionRate == 10000);
static_assert(hipDeviceAttributeCanUseStreamWaitValue == 10013);
static_assert(hipDeviceAttributeWallClockRate == 10017);

hipError_t constant(int* value, int answer) {
  *value = answer;
  return hipSuccess;
}

hipError_t compute_mode(const cuda::Driver& driver, int* value, int device) {
  int cuda_mode = 0;
  const int code = driver.device_get_attribute(&cuda_mode, 20, device);
  if (code != 0) return from_cuda(code);
  // Both vendors number Default, Exclusive (obsolete), Prohibited, ExclusiveProcess from 0 to 3.
  if (cuda_mode < hipComputeModeDefault || cuda_mode > hipComputeModeExclusiveProcess) {
    return hipErrorUnknown;
  }
  return constant(value, cuda_mode);
}

hipError_t total_memory(const cuda::Driver& driver, int* value, int device) {
  std::size_t bytes = 0;
  const int code = driver.device_total_mem(&bytes, device);
  *value = bytes > INT_MAX ? INT_MAX : static_cast<int>(bytes);
  return from_cuda(code);
}

// These attributes describe AMD's architecture, which the environment names, or have no NVIDIA
// counterpart.
hipError_t answer_here(const cuda::Driver& driver, int* value, hipDeviceAttribute_t attribute,
                       int device) {
  const Architecture& architecture = claimed_architecture();
  switch (attribute) {
    case hipDeviceAttributeWarpSize:
      return constant(value, architecture.warp_size);
    case hipDeviceAttributeComputeCapabilityMajor:
      return constant(value, architecture.major);
    case hipDeviceAttributeComputeCapabilityMinor:
      return constant(value, architecture.minor);
    case hipDeviceAttributeComputeMode:
      return compute_mode(driver, value, device);
    case hipDeviceAttributeTotalGlobalMem:
      return total_memory(driver, value, device);
    case hipDeviceAttributeClockInstructionRate:
    case hipDeviceAttributeWallClockRate:
      return constant(value, 1'000'000);  // wall_clock64() counts nanoseconds; the unit is kHz.
    case hipDeviceAttributeIsLargeBar:
    case hipDeviceAttributeFineGrainSupport:
      return constant(value, 1);
    case hipDeviceAttributeAsicRevision:
    case hipDeviceAttributeImageSupport:
    case hipDeviceAttributeHdpMemFlushCntl:
    case hipDeviceAttributeHdpRegFlushCntl:
    case hipDeviceAttributeCooperativeMultiDeviceUnmatchedFunc:
    case hipDeviceAttributeCooperativeMultiDeviceUnmatchedGridDim:
    case hipDeviceAttributeCooperativeMultiDeviceUnmatchedBlockDim:
    case hipDeviceAttributeCooperativeMultiDeviceUnmatchedSharedMem:
    case hipDeviceAttributeLuid:
    case hipDeviceAttributeLuidDeviceNodeMask:
      return constant(value, 0);
    default:
      // The five Unused enumerators and the range marks are no attributes.
      return reject("hipDeviceGetAttribute", "attribute",
                    static_cast<unsigned long long>(attribute));
  }
}

}  // namespace

hipError_t read_attribute(const cuda::Driver& driver, int* value, hipDeviceAttribute_t attribute,
                          int device) {
  if (attribute == hipDeviceAttributeCanUseStreamWaitValue && hostile(Hostile::kNoWaitValue)) {
    return constant(value, 0);
  }
  for (const Pair& pair : kForwarded) {
    if (pair.hip == attribute) {
      return from_cuda(driver.device_get_attribute(value, pair.cuda, device));
    }
  }
  return answer_here(driver, value, attribute, device);
}

}  // namespace forward
