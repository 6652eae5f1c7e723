// Compares hetccl's declarations of net plug-ins with the sizes and offsets that GCC gives NVIDIA's
// headers (NCCL 2.30, plugins/net/example/nccl/net_v8.h to net_v12.h) on x86-64.
#include "transport/ncclnet/abi.h"

#include <doctest/doctest.h>

namespace hetccl::transport::ncclnet::abi {
namespace {

// Every version has the same places; what follows irecvConsumed is not declared.
template <typename Version>
constexpr bool has_places_of_net() {
  using Table = Net<Version>;
  return offsetof(Table, name) == 0 && offsetof(Table, init) == 8 &&
         offsetof(Table, devices) == 16 && offsetof(Table, get_properties) == 24 &&
         offsetof(Table, listen) == 32 && offsetof(Table, connect) == 40 &&
         offsetof(Table, accept) == 48 && offsetof(Table, register_memory) == 56 &&
         offsetof(Table, register_dma_buf) == 64 && offsetof(Table, deregister) == 72 &&
         offsetof(Table, send) == 80 && offsetof(Table, receive) == 88 &&
         offsetof(Table, flush) == 96 && offsetof(Table, test) == 104 &&
         offsetof(Table, close_sender) == 112 && offsetof(Table, close_receiver) == 120 &&
         offsetof(Table, close_listener) == 128 && offsetof(Table, get_device_region) == 136 &&
         offsetof(Table, receive_consumed) == 144 && sizeof(Table) == 152;
}
static_assert(has_places_of_net<V8>() && has_places_of_net<V9>() && has_places_of_net<V10>() &&
              has_places_of_net<V11>() && has_places_of_net<V12>());

static_assert(sizeof(PropertiesV8) == 64);
static_assert(offsetof(PropertiesV8, guid) == 16 && offsetof(PropertiesV8, pointers) == 24);
static_assert(offsetof(PropertiesV8, registers_globally) == 28);
static_assert(offsetof(PropertiesV8, mbps) == 32 && offsetof(PropertiesV8, port) == 36);
static_assert(offsetof(PropertiesV8, latency) == 40 && offsetof(PropertiesV8, max_comms) == 44);
static_assert(offsetof(PropertiesV8, max_receives) == 48);
static_assert(offsetof(PropertiesV8, offload_type) == 52);
static_assert(offsetof(PropertiesV8, offload_version) == 56);

template <typename Properties>
constexpr bool has_places_of_properties(size_t max_bytes) {
  return offsetof(Properties, name) == 0 && offsetof(Properties, pci_path) == 8 &&
         offsetof(Properties, guid) == 16 && offsetof(Properties, pointers) == 24 &&
         offsetof(Properties, registers_globally) == 28 &&
         offsetof(Properties, force_flush) == 32 && offsetof(Properties, mbps) == 36 &&
         offsetof(Properties, port) == 40 && offsetof(Properties, latency) == 44 &&
         offsetof(Properties, max_comms) == 48 && offsetof(Properties, max_receives) == 52 &&
         offsetof(Properties, offload_type) == 56 && offsetof(Properties, offload_version) == 60 &&
         offsetof(Properties, n_devices) == 64 && offsetof(Properties, max_bytes) == max_bytes &&
         offsetof(Properties, max_collective_bytes) == max_bytes + 8;
}
static_assert(has_places_of_properties<PropertiesV9>(88) && sizeof(PropertiesV9) == 104);
static_assert(offsetof(PropertiesV11, max_multi_request) == 104 && sizeof(PropertiesV11) == 112);
static_assert(has_places_of_properties<PropertiesV9Of<8>>(104));
static_assert(offsetof(PropertiesV12, max_multi_request) == 120);
static_assert(offsetof(PropertiesV12, rail) == 124 && offsetof(PropertiesV12, plane) == 126);
static_assert(sizeof(PropertiesV12) == 128);
static_assert(sizeof(CommConfig) == 4);
static_assert(kHandleBytes == 128 && kMaxRequests == 32);
static_assert(kPointerHost == 1 && kPointerCuda == 2 && kPointerDmaBuf == 4);
static_assert(kSystemError == 2 && kInternalError == 3 && kRemoteError == 6);
static_assert(kLogWarn == 2 && kLogInfo == 3 && kLogTrace == 5);

}  // namespace

TEST_CASE("the declarations have the layout of NVIDIA's headers") {
  CHECK(has_places_of_net<V12>());  // and all of the above, when this compiled
}

}  // namespace hetccl::transport::ncclnet::abi
