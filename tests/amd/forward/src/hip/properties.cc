// Device properties: hipGetDevicePropertiesR0600 and the device's name.
#include <cstdio>
#include <cstring>

#include "core/architecture.h"
#include "hip/attributes.h"
#include "hip/call.h"
#include "hip/device_name.h"

namespace forward {

// AMD's structure has 1472 bytes, with the HIP-only members behind 32 reserved integers.
static_assert(sizeof(hipDeviceProp_tR0600) == 1472);
static_assert(offsetof(hipDeviceProp_tR0600, warpSize) == 308);
static_assert(offsetof(hipDeviceProp_tR0600, gcnArchName) == 1160);

std::string device_name(const cuda::Driver& driver, int device) {
  char name[128] = "";
  (void)driver.device_get_name(name, sizeof name, device);
  return std::string(name) + " (HIP forwarded to NVIDIA by a test library, not AMD hardware)";
}

namespace {

// Reads attributes and keeps the first error.
class Reader {
 public:
  Reader(const cuda::Driver& driver, int device) : driver_(driver), device_(device) {}

  int operator()(hipDeviceAttribute_t attribute) {
    int value = 0;
    const hipError_t error = read_attribute(driver_, &value, attribute, device_);
    if (error_ == hipSuccess) error_ = error;
    return value;
  }

  [[nodiscard]] std::size_t bytes(hipDeviceAttribute_t attribute) {
    return static_cast<std::size_t>((*this)(attribute));
  }

  [[nodiscard]] hipError_t error() const { return error_; }

 private:
  const cuda::Driver& driver_;
  int device_;
  hipError_t error_ = hipSuccess;
};

void fill_limits(hipDeviceProp_tR0600& prop, Reader& read) {
  prop.sharedMemPerBlock = read.bytes(hipDeviceAttributeMaxSharedMemoryPerBlock);
  prop.sharedMemPerBlockOptin = read.bytes(hipDeviceAttributeSharedMemPerBlockOptin);
  prop.sharedMemPerMultiprocessor = read.bytes(hipDeviceAttributeSharedMemPerMultiprocessor);
  prop.maxSharedMemoryPerMultiProcessor = prop.sharedMemPerMultiprocessor;
  prop.regsPerBlock = read(hipDeviceAttributeMaxRegistersPerBlock);
  prop.regsPerMultiprocessor = read(hipDeviceAttributeMaxRegistersPerMultiprocessor);
  prop.maxThreadsPerBlock = read(hipDeviceAttributeMaxThreadsPerBlock);
  prop.maxThreadsPerMultiProcessor = read(hipDeviceAttributeMaxThreadsPerMultiProcessor);
  prop.maxBlocksPerMultiProcessor = read(hipDeviceAttributeMaxBlocksPerMultiProcessor);
  prop.maxThreadsDim[0] = read(hipDeviceAttributeMaxBlockDimX);
  prop.maxThreadsDim[1] = read(hipDeviceAttributeMaxBlockDimY);
  prop.maxThreadsDim[2] = read(hipDeviceAttributeMaxBlockDimZ);
  prop.maxGridSize[0] = read(hipDeviceAttributeMaxGridDimX);
  prop.maxGridSize[1] = read(hipDeviceAttributeMaxGridDimY);
  prop.maxGridSize[2] = read(hipDeviceAttributeMaxGridDimZ);
  prop.totalConstMem = read.bytes(hipDeviceAttributeTotalConstantMemory);
  prop.memPitch = read.bytes(hipDeviceAttributeMaxPitch);
}

void fill_hardware(hipDeviceProp_tR0600& prop, Reader& read) {
  prop.multiProcessorCount = read(hipDeviceAttributeMultiprocessorCount);
  prop.clockRate = read(hipDeviceAttributeClockRate);
  prop.memoryClockRate = read(hipDeviceAttributeMemoryClockRate);
  prop.memoryBusWidth = read(hipDeviceAttributeMemoryBusWidth);
  prop.l2CacheSize = read(hipDeviceAttributeL2CacheSize);
  prop.asyncEngineCount = read(hipDeviceAttributeAsyncEngineCount);
  prop.pciBusID = read(hipDeviceAttributePciBusId);
  prop.pciDeviceID = read(hipDeviceAttributePciDeviceId);
  prop.pciDomainID = read(hipDeviceAttributePciDomainID);
  prop.integrated = read(hipDeviceAttributeIntegrated);
  prop.ECCEnabled = read(hipDeviceAttributeEccEnabled);
  prop.isMultiGpuBoard = read(hipDeviceAttributeIsMultiGpuBoard);
}

void fill_features(hipDeviceProp_tR0600& prop, Reader& read) {
  prop.canMapHostMemory = read(hipDeviceAttributeCanMapHostMemory);
  prop.computeMode = read(hipDeviceAttributeComputeMode);
  prop.concurrentKernels = read(hipDeviceAttributeConcurrentKernels);
  prop.concurrentManagedAccess = read(hipDeviceAttributeConcurrentManagedAccess);
  prop.cooperativeLaunch = read(hipDeviceAttributeCooperativeLaunch);
  prop.hostNativeAtomicSupported = read(hipDeviceAttributeHostNativeAtomicSupported);
  prop.hostRegisterSupported = read(hipDeviceAttributeHostRegisterSupported);
  prop.managedMemory = read(hipDeviceAttributeManagedMemory);
  prop.memoryPoolsSupported = read(hipDeviceAttributeMemoryPoolsSupported);
  prop.pageableMemoryAccess = read(hipDeviceAttributePageableMemoryAccess);
  prop.streamPrioritiesSupported = read(hipDeviceAttributeStreamPrioritiesSupported);
  prop.unifiedAddressing = read(hipDeviceAttributeUnifiedAddressing);
  prop.isLargeBar = read(hipDeviceAttributeIsLargeBar);
  prop.clockInstructionRate = read(hipDeviceAttributeClockInstructionRate);
}

void fill_identity(hipDeviceProp_tR0600& prop, const cuda::Driver& driver, int device) {
  const Architecture& architecture = claimed_architecture();
  std::snprintf(prop.name, sizeof prop.name, "%s", device_name(driver, device).c_str());
  std::snprintf(prop.gcnArchName, sizeof prop.gcnArchName, "%s", architecture.name.c_str());
  prop.warpSize = architecture.warp_size;
  prop.major = architecture.major;
  prop.minor = architecture.minor;
  (void)driver.device_get_uuid(reinterpret_cast<cuda::Uuid*>(&prop.uuid), device);
  (void)driver.device_total_mem(&prop.totalGlobalMem, device);
}

}  // namespace
}  // namespace forward

using namespace forward;

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* prop, int deviceId) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (prop == nullptr) return hipErrorInvalidValue;
    if (deviceId < 0 || deviceId >= device_count(driver)) return hipErrorInvalidDevice;
    std::memset(static_cast<void*>(prop), 0, sizeof *prop);
    Reader read(driver, deviceId);
    fill_identity(*prop, driver, deviceId);
    fill_limits(*prop, read);
    fill_hardware(*prop, read);
    fill_features(*prop, read);
    return read.error();
  });
}
