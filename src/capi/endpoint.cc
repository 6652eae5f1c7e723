// The C API's endpoints (hetccl/endpoint.h): handles and argument checks.
#include "hetccl/endpoint.h"

#include <cinttypes>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/json.h"
#include "capi/endpoint.h"
#include "capi/process.h"
#include "onesided/endpoint.h"

using hetccl::error;
using hetccl::ErrorCode;
using hetccl::Json;
using hetccl::Result;
using hetccl::Status;
using hetccl::capi::check_fork;
using hetccl::capi::deadline_of;
using hetccl::capi::finish;
using hetccl::capi::finished;
using hetccl::capi::Lease;
using hetccl::capi::null;
using hetccl::onesided::Block;
using hetccl::onesided::BlockList;
using hetccl::onesided::Endpoint;
using hetccl::onesided::PeerInfo;
using hetccl::onesided::Transfer;

static_assert(HETCCL_MAX_NOTIFICATION == hetccl::onesided::kMaxNotification);
static_assert(int{hetcclRegionGet} == hetccl::onesided::kGet &&
              int{hetcclRegionPut} == hetccl::onesided::kPut &&
              int{hetcclRegionHost} == hetccl::onesided::kHostMemory);

namespace {

struct OpenEndpoint {
  Lease lease;
  std::shared_ptr<Endpoint> endpoint;
};

struct OpenTransfer {
  std::shared_ptr<OpenEndpoint> of;
  uint64_t peer = 0;
  std::shared_ptr<Transfer> transfer;
};

// Leaked: threads may still use it at exit.
template <typename T, typename Handle>
class Handles {
 public:
  explicit Handles(const char* what) : what_(what) {}
  Handle add(std::shared_ptr<T> made) {
    const std::lock_guard lock(mutex_);
    all_.emplace(++last_, std::move(made));
    return reinterpret_cast<Handle>(last_);  // NOLINT(performance-no-int-to-ptr): never followed
  }
  Result<std::shared_ptr<T>> find(Handle handle) {
    HETCCL_TRY(check_fork());
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(reinterpret_cast<uintptr_t>(handle));
    if (found != all_.end()) return found->second;
    return error(ErrorCode::InvalidArgument, "%s is none: it was destroyed or never made", what_);
  }
  [[nodiscard]] std::map<uintptr_t, std::shared_ptr<T>> all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }
  void remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    all_.erase(reinterpret_cast<uintptr_t>(handle));
  }

 private:
  const char* const what_;
  std::mutex mutex_;
  uintptr_t last_ = 0;
  std::map<uintptr_t, std::shared_ptr<T>> all_;
};

auto& endpoints() {
  static auto* const all = new Handles<OpenEndpoint, hetcclEndpoint_t>("endpoint");
  return *all;
}
auto& lists() {
  static auto* const all = new Handles<const BlockList, hetcclBlockList_t>("list");
  return *all;
}
auto& transfers() {
  static auto* const all = new Handles<OpenTransfer, hetcclTransfer_t>("transfer");
  return *all;
}

template <typename Body>
hetcclResult_t with_endpoint(hetcclEndpoint_t handle, const Body& body) {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto open, endpoints().find(handle));
    return body(*open->endpoint);
  });
}

Status copy_text(const std::string& text, char* buffer, size_t* bytes) {
  if (bytes == nullptr) return null("bytes");
  const size_t room = *bytes;
  *bytes = text.size();
  if (buffer == nullptr) return {};
  if (room < text.size()) {
    return error(ErrorCode::InvalidArgument, "buffer has room for %zu bytes of %zu", room,
                 text.size());
  }
  std::memcpy(buffer, text.data(), text.size());
  return {};
}

Json json_of(const PeerInfo& peer) {
  const auto& counts = peer.statistics;
  return Json{{"number", peer.number},
              {"name", peer.name},
              {"where", peer.where},
              {"transport", peer.transport},
              {"gone", peer.gone.ok() ? Json() : Json(peer.gone.message())},
              {"bytes_put", counts.bytes_put},
              {"bytes_got", counts.bytes_got},
              {"bytes_taken", counts.bytes_taken},
              {"bytes_given", counts.bytes_given},
              {"transfers", counts.transfers},
              {"failed", counts.failed},
              {"under_way", counts.under_way},
              {"stalls", counts.stalls}};
}

int64_t or_else(int64_t given, int64_t usual) {
  return given > 0 ? std::min(given, hetccl::capi::kLongestTimeoutMs) : usual;
}

Status read(const hetcclTransferOptions_t* options, Endpoint::Call& call) {
  if (options == nullptr) return {};
  if (options->size != sizeof *options) {
    return error(ErrorCode::InvalidArgument, "options->size is %zu: set it to %zu", options->size,
                 sizeof *options);
  }
  if (options->notification == nullptr && options->notificationBytes > 0)
    return null("options->notification");
  if (options->notifies != 0 || options->notificationBytes > 0) {
    const auto* data = static_cast<const uint8_t*>(options->notification);
    call.notification.emplace(data, data + options->notificationBytes);
  }
  call.timeout_ms = or_else(options->timeoutMs, 0);
  call.stream = options->stream;
  return {};
}

hetcclResult_t begin(hetcclEndpoint_t endpoint, uint64_t peer, bool puts, hetcclBlockList_t list,
                     const hetcclTransferOptions_t* options, hetcclTransfer_t* transfer) {
  return finished([&]() -> Status {
    if (transfer == nullptr) return null("transfer");
    *transfer = nullptr;
    HETCCL_ASSIGN(const auto open, endpoints().find(endpoint));
    Endpoint::Call call;
    call.puts = puts;
    HETCCL_ASSIGN(call.blocks, lists().find(list));
    HETCCL_TRY(read(options, call));
    HETCCL_ASSIGN(auto begun, open->endpoint->begin(peer, std::move(call)));
    *transfer =
        transfers().add(std::make_shared<OpenTransfer>(OpenTransfer{open, peer, std::move(begun)}));
    return {};
  });
}

hetcclResult_t state_of(const OpenTransfer& open) {
  return open.transfer->done() ? finish(open.transfer->status()) : hetcclInProgress;
}

}  // namespace

void hetccl::capi::close_endpoints(TimePoint deadline) {
  for (const auto& [number, open] : endpoints().all()) open->endpoint->close(deadline);
}

hetcclResult_t hetcclEndpointCreate(hetcclEndpoint_t* endpoint, const char* name,
                                    const char* device) {
  return finished([&]() -> Status {
    if (endpoint == nullptr) return null("endpoint");
    *endpoint = nullptr;
    if (name == nullptr) return null("name");
    HETCCL_ASSIGN(auto lease, hetccl::capi::runtime());
    HETCCL_ASSIGN(auto made, Endpoint::create(*lease, {name, device == nullptr ? "" : device}));
    *endpoint = endpoints().add(
        std::make_shared<OpenEndpoint>(OpenEndpoint{std::move(lease), std::move(made)}));
    return {};
  });
}

hetcclResult_t hetcclEndpointDestroy(hetcclEndpoint_t endpoint) {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto open, endpoints().find(endpoint));
    endpoints().remove(endpoint);
    open->endpoint->close(hetccl::TimePoint::max());
    return {};
  });
}

hetcclResult_t hetcclEndpointGetMetadata(hetcclEndpoint_t endpoint, char* buffer, size_t* bytes) {
  return with_endpoint(endpoint,
                       [&](Endpoint& self) { return copy_text(self.metadata(), buffer, bytes); });
}

hetcclResult_t hetcclEndpointRegister(hetcclEndpoint_t endpoint, void* data, size_t bytes,
                                      unsigned int flags, const char* label, uint64_t* region) {
  return with_endpoint(endpoint, [&](Endpoint& self) -> Status {
    if (region == nullptr) return null("region");
    HETCCL_ASSIGN(*region, self.add_region(data, bytes, flags, label == nullptr ? "" : label));
    return {};
  });
}

hetcclResult_t hetcclEndpointDeregister(hetcclEndpoint_t endpoint, uint64_t region,
                                        int64_t timeoutMs) {
  return with_endpoint(endpoint, [&](Endpoint& self) {
    return self.remove_region(region, or_else(timeoutMs, self.settings().liveness_ms));
  });
}

hetcclResult_t hetcclEndpointConnect(hetcclEndpoint_t endpoint, const char* metadata, size_t bytes,
                                     int64_t timeoutMs, uint64_t* peer) {
  return with_endpoint(endpoint, [&](Endpoint& self) -> Status {
    if (metadata == nullptr) return null("metadata");
    if (peer == nullptr) return null("peer");
    const int64_t timeout = or_else(timeoutMs, self.settings().init_timeout_ms);
    HETCCL_ASSIGN(*peer, self.connect({metadata, bytes}, timeout));
    return {};
  });
}

hetcclResult_t hetcclEndpointDisconnect(hetcclEndpoint_t endpoint, uint64_t peer) {
  return with_endpoint(endpoint, [&](Endpoint& self) { return self.disconnect(peer); });
}

hetcclResult_t hetcclEndpointGetPeers(hetcclEndpoint_t endpoint, char* buffer, size_t* bytes) {
  return with_endpoint(endpoint, [&](Endpoint& self) {
    std::vector<Json> all;
    self.forget_losses();  // before looking: a later loss is news again
    for (const PeerInfo& peer : self.peers()) all.push_back(json_of(peer));
    return copy_text(Json(std::move(all)).dump(), buffer, bytes);
  });
}

hetcclResult_t hetcclEndpointPrepare(hetcclEndpoint_t endpoint, const hetcclBlock_t* blocks,
                                     size_t n, hetcclBlockList_t* list) {
  return with_endpoint(endpoint, [&](Endpoint& self) -> Status {
    if (list == nullptr) return null("list");
    *list = nullptr;
    if (blocks == nullptr && n > 0) return null("blocks");
    std::vector<Block> all;
    all.reserve(n);
    for (const hetcclBlock_t& one : std::span(blocks, n)) {
      all.push_back(
          {one.localRegion, one.localOffset, one.remoteRegion, one.remoteOffset, one.bytes});
    }
    HETCCL_ASSIGN(auto made, self.prepare(all));
    *list = lists().add(std::move(made));
    return {};
  });
}

hetcclResult_t hetcclBlockListFree(hetcclBlockList_t list) {
  return finished([&]() -> Status {
    HETCCL_TRY(lists().find(list).status());
    lists().remove(list);
    return {};
  });
}

hetcclResult_t hetcclEndpointPut(hetcclEndpoint_t endpoint, uint64_t peer, hetcclBlockList_t list,
                                 const hetcclTransferOptions_t* options,
                                 hetcclTransfer_t* transfer) {
  return begin(endpoint, peer, true, list, options, transfer);
}

hetcclResult_t hetcclEndpointGet(hetcclEndpoint_t endpoint, uint64_t peer, hetcclBlockList_t list,
                                 const hetcclTransferOptions_t* options,
                                 hetcclTransfer_t* transfer) {
  return begin(endpoint, peer, false, list, options, transfer);
}

hetcclResult_t hetcclTransferTest(hetcclTransfer_t transfer) {
  const auto open = transfers().find(transfer);
  return open.ok() ? state_of(*open.value()) : finish(open.status());
}

hetcclResult_t hetcclTransferWait(hetcclTransfer_t transfer, int64_t timeoutMs) {
  const auto open = transfers().find(transfer);
  if (!open.ok()) return finish(open.status());
  Endpoint& endpoint = *open.value()->of->endpoint;
  const auto waited = finished([&]() -> Status {
    static_cast<void>(
        endpoint.wait(*open.value()->transfer, deadline_of(endpoint.clock(), timeoutMs)));
    return {};
  });
  return waited == hetcclSuccess ? state_of(*open.value()) : waited;
}

hetcclResult_t hetcclTransferSetHook(hetcclTransfer_t transfer, hetcclTransferHook_t hook,
                                     void* context) {
  return finished([&]() -> Status {
    if (hook == nullptr) return null("hook");
    HETCCL_ASSIGN(const auto open, transfers().find(transfer));
    open->transfer->when_done(
        [hook, context](const Status& status) { hook(context, finish(status)); });
    return {};
  });
}

hetcclResult_t hetcclTransferCancel(hetcclTransfer_t transfer) {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto open, transfers().find(transfer));
    open->of->endpoint->cancel(open->peer, *open->transfer, "the transfer was cancelled");
    return {};
  });
}

hetcclResult_t hetcclTransferFree(hetcclTransfer_t transfer) {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto open, transfers().find(transfer));
    transfers().remove(transfer);
    open->of->endpoint->cancel(open->peer, *open->transfer, "the transfer was freed");
    return {};
  });
}

hetcclResult_t hetcclEndpointNotify(hetcclEndpoint_t endpoint, uint64_t peer, const void* data,
                                    size_t bytes) {
  return with_endpoint(endpoint, [&](Endpoint& self) -> Status {
    if (data == nullptr && bytes > 0) return null("data");
    const auto* const begin = static_cast<const uint8_t*>(data);
    return self.notify(peer, {begin, begin + bytes});
  });
}

hetcclResult_t hetcclEndpointGetDescriptor(hetcclEndpoint_t endpoint, int* descriptor) {
  return with_endpoint(endpoint, [&](Endpoint& self) -> Status {
    if (descriptor == nullptr) return null("descriptor");
    HETCCL_ASSIGN(*descriptor, self.descriptor());
    return {};
  });
}

hetcclResult_t hetcclEndpointTakeNotification(hetcclEndpoint_t endpoint, int64_t timeoutMs,
                                              uint64_t* peer, void* buffer, size_t* bytes) {
  bool came = false;
  const hetcclResult_t result = with_endpoint(endpoint, [&](Endpoint& self) -> Status {
    if (peer == nullptr) return null("peer");
    if (buffer == nullptr) return null("buffer");
    if (bytes == nullptr) return null("bytes");
    HETCCL_ASSIGN(const auto letter, self.take_notification(deadline_of(self.clock(), timeoutMs)));
    if (!letter) return {};
    came = true;
    *peer = letter->peer;
    *bytes = letter->bytes.size();
    if (*bytes > 0) std::memcpy(buffer, letter->bytes.data(), *bytes);
    return {};
  });
  return result == hetcclSuccess && !came ? hetcclInProgress : result;
}
