#include "capi/ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <nvtx3/nvToolsExt.h>

namespace hetccl::capi {
namespace {

// Returns null if no tool listens.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("hetccl");
  return made;
}

}  // namespace

Range::Range(std::string_view name, uint64_t number) {
  if (domain() == nullptr) return;
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = number;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.data();
  nvtxDomainRangePushEx(domain(), &attributes);
}

Range::~Range() {
  if (domain() != nullptr) nvtxDomainRangePop(domain());
}

}  // namespace hetccl::capi

#else  // built without NVTX's headers: shows nothing

namespace hetccl::capi {

Range::Range(std::string_view /*name*/, uint64_t /*number*/) {}
Range::~Range() = default;

}  // namespace hetccl::capi

#endif
