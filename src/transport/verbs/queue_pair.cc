#include "transport/verbs/queue_pair.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/little_endian.h"
#include "net/auth.h"

namespace hetccl::transport::verbs {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint32_t kInlineBytes = 220;  // room for a message of 112 bytes with its headers; most
                                        // devices grant it
constexpr uint8_t kRnrRetries = 6;      // for a peer that has no receive posted, which is a defect
constexpr uint8_t kMinRnrTimer = 12;    // 0.64 ms
constexpr uint8_t kHops = 64;

// Begins with a random packet number. A device drops packets that do not follow in number, so it
// drops late packets of an earlier queue pair that had the same queue number.
uint32_t random_psn() {
  uint32_t psn = 0;
  net::random_bytes(&psn, sizeof psn);
  return psn & 0xffffffU;
}

}  // namespace

void encode(const QpAddress& address, uint8_t out[kQpAddressBytes]) {
  put_number(out, kVersion);
  put_number(out + 1, address.number);
  put_number(out + 5, address.psn);
  put_number(out + 9, address.lid);
  put_number(out + 11, address.mtu);
  std::memcpy(out + 12, address.gid.raw, sizeof address.gid.raw);
}

Result<QpAddress> decode_qp(const uint8_t in[kQpAddressBytes]) {
  const auto version = get_number<uint8_t>(in);
  QpAddress address;
  address.number = get_number<uint32_t>(in + 1);
  address.psn = get_number<uint32_t>(in + 5);
  address.lid = get_number<uint16_t>(in + 9);
  address.mtu = get_number<uint8_t>(in + 11);
  std::memcpy(address.gid.raw, in + 12, sizeof address.gid.raw);
  constexpr uint32_t kMost = 1U << 24U;
  if (version != kVersion || address.number >= kMost || address.psn >= kMost || address.mtu < 1 ||
      address.mtu > 5)
    return error(ErrorCode::RemoteError, "what arrived is not a queue pair of this version");
  return address;
}

QueuePair::QueuePair(const Port& port, const Options& options)
    : port_(port), options_(options), psn_(random_psn()) {}

Result<std::unique_ptr<QueuePair>> QueuePair::create(const Port& port, const Options& options) {
  std::unique_ptr<QueuePair> made(new QueuePair(port, options));
  HETCCL_TRY(made->prepare());
  return made;
}

Status QueuePair::prepare() {
  const Device& device = *port_.device;
  const auto [sends, receives, access, user] = options_;
  errno = 0;
  cq_ = device.api().create_cq(device.context(), static_cast<int>(sends + receives), user,
                               device.events(), 0);
  if (cq_ == nullptr)
    return system_error(format("making a completion queue of %s", port_.name.c_str()),
                        errno != 0 ? errno : ENOMEM);
  for (const uint32_t inline_bytes : {kInlineBytes, 0U}) {  // some devices have no room for inline
                                                            // data
    abi::QpInit init{
        nullptr,          cq_, cq_, nullptr, {sends, receives, kMostParts, 1, inline_bytes},
        abi::kQpReliable, 1};
    qp_ = device.api().create_qp(device.pd(), &init);
    inline_bytes_ = init.limits.inline_bytes;
    if (qp_ != nullptr) break;
  }
  if (qp_ == nullptr)
    return system_error(format("making a queue pair of %s", port_.name.c_str()),
                        errno != 0 ? errno : ENOMEM);
  abi::QpAttr attr{};
  attr.state = abi::kQpInit;
  attr.pkey_index = port_.pkey_index;
  attr.port = port_.number;
  attr.access = access;
  return modify(attr, abi::kSetState | abi::kSetPkey | abi::kSetPort | abi::kSetAccess,
                "preparing");
}

// No event of the device may outlive the queue that it is about.
QueuePair::~QueuePair() {
  const Api& api = port_.device->api();
  if (qp_ != nullptr) api.destroy_qp(qp_);
  if (cq_ != nullptr) api.destroy_cq(cq_);
}

Status QueuePair::modify(abi::QpAttr& attr, int mask, const char* what) {
  const int failure = port_.device->api().modify_qp(qp_, &attr, mask);
  if (failure == 0) return {};
  return system_error(format("%s a queue pair of %s", what, port_.name.c_str()),
                      failure > 0 ? failure : errno);
}

QpAddress QueuePair::address() const {
  return {qp_->number, psn_, port_.lid, static_cast<uint8_t>(port_.mtu), port_.gid.gid};
}

Status QueuePair::start_receiving(const QpAddress& peer, const Config& config) {
  abi::QpAttr attr{};
  attr.state = abi::kQpReadyToReceive;
  attr.mtu = std::min<int>(port_.mtu, peer.mtu);
  attr.peer_qp = peer.number;
  attr.receive_psn = peer.psn;
  attr.min_rnr_timer = kMinRnrTimer;
  attr.max_peer_reads = reads();
  attr.address.port = port_.number;
  attr.address.lid = peer.lid;
  attr.address.service_level = static_cast<uint8_t>(config.rdma_service_level);
  // InfiniBand within a subnet needs no global route; Ethernet has nothing else.
  if (port_.link == abi::kLinkEthernet) {
    attr.address.is_global = 1;
    attr.address.global.destination = peer.gid;
    attr.address.global.source_index = port_.gid_index;
    attr.address.global.hop_limit = kHops;
    attr.address.global.traffic_class = static_cast<uint8_t>(config.rdma_traffic_class);
  }
  return modify(attr,
                abi::kSetState | abi::kSetAddress | abi::kSetMtu | abi::kSetPeerQp |
                    abi::kSetReceivePsn | abi::kSetMaxPeerReads | abi::kSetMinRnrTimer,
                "connecting");
}

Status QueuePair::start_sending(const Config& config) {
  abi::QpAttr attr{};
  attr.state = abi::kQpReadyToSend;
  attr.send_psn = psn_;
  attr.timeout = static_cast<uint8_t>(config.rdma_timeout);
  attr.retries = static_cast<uint8_t>(config.rdma_retries);
  attr.rnr_retries = kRnrRetries;
  attr.max_reads = reads();
  return modify(attr,
                abi::kSetState | abi::kSetSendPsn | abi::kSetTimeout | abi::kSetRetries |
                    abi::kSetRnrRetries | abi::kSetMaxReads,
                "starting");
}

Status QueuePair::post_receive(uint64_t id, std::span<abi::Sge> parts) {
  abi::RecvWr request{id, nullptr, parts.data(), static_cast<int>(parts.size())};
  abi::RecvWr* bad = nullptr;
  const int failure = qp_->context->ops.post_recv(qp_, &request, &bad);
  if (failure == 0) return {};
  return system_error(format("posting a receive to %s", port_.name.c_str()), failure);
}

Status QueuePair::post_send(uint64_t id, std::span<abi::Sge> parts, const Remote* remote) {
  abi::SendWr request{};
  request.id = id;
  request.parts = parts.data();
  request.n_parts = static_cast<int>(parts.size());
  request.opcode = remote != nullptr ? remote->opcode : abi::kSend;
  request.flags = abi::kSignaled;
  if (remote != nullptr) {
    request.immediate = htonl(remote->immediate);
    request.remote.address = remote->address;
    request.remote.rkey = remote->key;
  } else if (parts[0].length <= inline_bytes_) {
    request.flags |= abi::kInline;
  }
  abi::SendWr* bad = nullptr;
  const int failure = qp_->context->ops.post_send(qp_, &request, &bad);
  if (failure == 0) return {};
  return system_error(format("posting a send to %s", port_.name.c_str()), failure);
}

int QueuePair::poll(std::span<abi::Wc> into) {
  return cq_->context->ops.poll_cq(cq_, static_cast<int>(into.size()), into.data());
}

bool QueuePair::is_concerned(const abi::AsyncEvent& event) const {
  switch (event.type) {
    case abi::kEventDeviceFatal:
      return true;
    case abi::kEventCqError:
      return event.of.cq == cq_;
    case abi::kEventQpFatal:
    case abi::kEventQpRequestError:
    case abi::kEventQpAccessError:
      return event.of.qp == qp_;
    default:
      return false;
  }
}

Status QueuePair::arm() {
  const int failure = cq_->context->ops.req_notify_cq(cq_, 0);
  if (failure == 0) return {};
  return system_error(format("asking %s for events", port_.name.c_str()), failure);
}

}  // namespace hetccl::transport::verbs
