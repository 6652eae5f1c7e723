// Access between devices.
#include "hip/call.h"

using namespace forward;

hipError_t hipDeviceCanAccessPeer(int* canAccessPeer, int deviceId, int peerDeviceId) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (canAccessPeer == nullptr) return hipErrorInvalidValue;
    *canAccessPeer = 0;
    if (deviceId == peerDeviceId) return hipSuccess;
    return from_cuda(driver.device_can_access_peer(canAccessPeer, deviceId, peerDeviceId));
  });
}

hipError_t hipDeviceEnablePeerAccess(int peerDeviceId, unsigned int flags) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (flags != 0) return reject("hipDeviceEnablePeerAccess", "flags", flags);
    cuda::Handle peer = nullptr;
    const hipError_t error = primary_context(driver, peerDeviceId, &peer);
    return error == hipSuccess ? from_cuda(driver.ctx_enable_peer(peer, 0)) : error;
  });
}

// The link type is HSA's number for PCI Express. The driver API has no counterpart.
hipError_t hipExtGetLinkTypeAndHopCount(int device1, int device2, uint32_t* linktype,
                                        uint32_t* hopcount) {
  constexpr uint32_t kPciExpress = 2;  // HSA_AMD_LINK_INFO_TYPE_PCIE
  return plain(__func__, [&](const cuda::Driver& driver) {
    const int count = device_count(driver);
    const bool valid = device1 >= 0 && device1 < count && device2 >= 0 && device2 < count;
    if (!valid || device1 == device2 || linktype == nullptr || hopcount == nullptr) {
      return hipErrorInvalidValue;
    }
    *linktype = kPciExpress;
    *hopcount = 1;
    return hipSuccess;
  });
}
