#include "fake/fake_verbs_wire.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace hetccl::fake::rdma {
namespace {

// Statuses that hetccl distinguishes only by their text.
enum : int { kLocalLength = 1, kLocalProtection = 4, kRemoteRequest = 9, kRemoteAccess = 10 };

void ring(int fd) {
  const uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

void make_event(Queue& queue) {
  auto& channel = *static_cast<Channel*>(queue.channel);
  if (!std::exchange(queue.armed, false)) return;
  channel.events.push_back(&queue);
  ++state().fabric.events;
  ring(channel.fd);
}

void complete(abi::Cq* cq, const abi::Wc& completion, bool is_send, uint32_t late = 0) {
  auto& queue = *static_cast<Queue*>(cq);
  if (queue.entries.size() >= queue.room) ++state().fabric.overflows;
  queue.entries.push_back({completion, is_send, late});
  make_event(queue);
}

uint32_t draw_lateness() {
  const uint32_t most = state().fabric.late;
  return most > 0 ? static_cast<uint32_t>(state().random() % most) : 0;
}

void complete_send(Pair& pair, uint64_t id, int status) {
  abi::Wc done{};
  done.id = id;
  done.qp = pair.number;
  done.status = status;
  done.vendor_error = status == abi::kWcSuccess ? 0 : 0x81;
  complete(pair.send_cq, done, true, draw_lateness());
}

void complete_receive(Pair& pair, abi::Wc arrival, int status) {
  arrival.id = pair.receives.front().first;
  arrival.qp = pair.number;
  arrival.status = status;
  pair.receives.pop_front();
  complete(pair.receive_cq, arrival, false);
}

// A pair in error flushes all requests, posted before or later.
void break_pair(Pair& pair) {
  pair.attr.state = abi::kQpError;
  for (const Request& request : std::exchange(pair.requests, {}))
    complete_send(pair, request.order.id, abi::kWcFlushed);
  while (!pair.receives.empty()) complete_receive(pair, {}, abi::kWcFlushed);
}

// The memory that `key` lets `pair` reach, `bytes` at `address`; null if it does not.
struct Reached {
  std::byte* data = nullptr;
  DmaBuf* dmabuf = nullptr;
};
Reached reach(const Pair& pair, uint32_t key, uint64_t address, size_t bytes, int access) {
  const auto found = state().regions.find(key);
  if (found == state().regions.end()) return {};
  abi::Mr* mr = found->second;
  const auto begin = reinterpret_cast<uint64_t>(mr->address);
  if (mr->pd != pair.pd || address < begin || address + bytes > begin + mr->length) return {};
  if ((state().access[mr] & access) != access) return {};
  const auto dmabuf = state().dmabufs.find(mr);
  if (dmabuf == state().dmabufs.end()) return {reinterpret_cast<std::byte*>(address)};
  state().fabric.device_bytes += bytes;
  DmaBuf& one = dmabuf->second;
  return {one.mapped + one.offset + (address - begin), &one};
}

void move_bytes(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (state().fabric.copy) return state().fabric.copy(to, from, bytes);
  std::memcpy(to, from, bytes);
}

void put(const Reached& to, const std::vector<std::byte>& bytes) {
  if (to.dmabuf != nullptr && state().fabric.holds_writes)
    to.dmabuf->held.emplace_back(to.data, bytes);
  else
    move_bytes(to.data, bytes.data(), bytes.size());
}

// Returns the bytes that a request sends, or nothing if it may not.
std::optional<std::vector<std::byte>> gather(const Pair& pair, const Request& request) {
  if ((request.order.flags & abi::kInline) != 0) return request.inlined;
  std::vector<std::byte> bytes;
  for (const abi::Sge& part : request.parts) {
    const auto* data = reach(pair, part.lkey, part.address, part.length, 0).data;
    if (data == nullptr) return {};
    bytes.resize(bytes.size() + part.length);
    move_bytes(bytes.data() + bytes.size() - part.length, data, part.length);
  }
  return bytes;
}

// The pair to which packets of `from` get, if any.
Pair* find_target(const Pair& from) {
  const auto found = state().pairs.find(from.attr.peer_qp);
  if (found == state().pairs.end()) return nullptr;
  Pair& to = *found->second;
  const auto& device = *static_cast<OpenDevice*>(to.context);
  const abi::AddressVector& way = from.attr.address;
  const abi::Gid gid = gid_of(device, to.attr.port, to.attr.address.global.source_index);
  const bool routed = way.is_global != 0
                          ? std::memcmp(way.global.destination.raw, gid.raw, sizeof gid.raw) == 0
                          : way.lid == lid_of(device, to.attr.port);
  const bool listens =
      to.attr.state == abi::kQpReadyToReceive || to.attr.state == abi::kQpReadyToSend;
  const bool agrees = to.attr.peer_qp == from.number && to.attr.mtu == from.attr.mtu &&
                      to.attr.receive_psn == from.attr.send_psn &&
                      to.attr.pkey_index == from.attr.pkey_index;
  return routed && listens && agrees ? &to : nullptr;
}

int refuse_access(Pair& to) {
  ++state().fabric.violations;
  add_event(*static_cast<OpenDevice*>(to.context), abi::kEventQpAccessError,
            static_cast<abi::Qp*>(&to));
  break_pair(to);
  return kRemoteAccess;
}

// Shows the writes that were held first.
int read_remote(const Pair& from, Pair& to, const Request& request) {
  const abi::Sge& into = request.parts.front();
  const auto& remote = request.order.remote;
  const bool open = (to.attr.access & abi::kRemoteRead) != 0 && from.reads > 0 && to.reads > 0;
  const Reached source =
      open ? reach(to, remote.rkey, remote.address, into.length, abi::kRemoteRead) : Reached{};
  const Reached target = reach(from, into.lkey, into.address, into.length, abi::kLocalWrite);
  if (target.data == nullptr) return ++state().fabric.violations, kLocalProtection;
  if (source.data == nullptr) return refuse_access(to);
  if (source.dmabuf != nullptr) {
    for (auto& [at, bytes] : source.dmabuf->held) move_bytes(at, bytes.data(), bytes.size());
    source.dmabuf->held.clear();
  }
  move_bytes(target.data, source.data, into.length);
  return abi::kWcSuccess;
}

// Without an immediate it needs no receive.
int write_remote(Pair& to, const abi::SendWr& order, const std::vector<std::byte>& bytes) {
  const bool open = (to.attr.access & abi::kRemoteWrite) != 0;
  const Reached into =
      open ? reach(to, order.remote.rkey, order.remote.address, bytes.size(), abi::kRemoteWrite)
           : Reached{};
  if (into.data == nullptr) return refuse_access(to);
  put(into, bytes);
  return abi::kWcSuccess;
}

// The status with which a request completes.
int deliver(Pair& from, const Request& request) {
  Pair* const target = find_target(from);
  if (target == nullptr) return abi::kWcRetryExceeded;
  Pair& to = *target;
  const int opcode = request.order.opcode;
  if (opcode == abi::kRdmaRead) return read_remote(from, to, request);
  const auto bytes = gather(from, request);
  if (!bytes) return ++state().fabric.violations, kLocalProtection;
  state().fabric.carried[static_cast<OpenDevice*>(from.context)->name] += bytes->size();
  if (opcode == abi::kRdmaWrite) return write_remote(to, request.order, *bytes);
  if (to.receives.empty()) return ++state().fabric.not_ready, abi::kWcRnrExceeded;
  const abi::Sge slot = to.receives.front().second;
  abi::Wc arrival{};
  arrival.bytes = static_cast<uint32_t>(bytes->size());
  if (opcode == abi::kRdmaWriteWithImm) {
    const int status = write_remote(to, request.order, *bytes);
    if (status != abi::kWcSuccess) return status;
    arrival.opcode = abi::kWcRecvRdmaWithImm;
    arrival.immediate = request.order.immediate;
  } else {
    arrival.opcode = abi::kWcRecv;
    if (bytes->size() > slot.length) {
      complete_receive(to, arrival, kLocalLength);
      break_pair(to);
      return kRemoteRequest;
    }
    const Reached into = reach(to, slot.lkey, slot.address, slot.length, abi::kLocalWrite);
    if (into.data == nullptr) return refuse_access(to);
    put(into, *bytes);
  }
  complete_receive(to, arrival, abi::kWcSuccess);
  return abi::kWcSuccess;
}

// A pair's requests move in their order.
void move(Pair& pair) {
  const VerbsFabric& fabric = state().fabric;
  while (!pair.requests.empty()) {
    Request& request = pair.requests.front();
    if (request.late > 0) {
      --request.late;
      return;
    }
    if (fabric.holds && fabric.holds(pair.number, request.order.opcode)) return;
    const bool fails = (fabric.fails_from > 0 && ++pair.sent >= fabric.fails_from) ||
                       (fabric.fails && fabric.fails(pair.number, request.order.opcode));
    const int status = fails ? fabric.failure : deliver(pair, request);
    const uint64_t id = request.order.id;
    pair.requests.pop_front();
    complete_send(pair, id, status);
    if (status != abi::kWcSuccess) break_pair(pair);
  }
}

bool is_sound(const Pair& pair, const abi::QpAttr& attr) {
  const auto& device = *static_cast<OpenDevice*>(pair.context);
  const bool ethernet = state().fabric.link == abi::kLinkEthernet;
  constexpr uint32_t kMost = 1U << 24U;
  if (attr.state == abi::kQpInit)
    return attr.port >= 1 && attr.port <= state().fabric.ports && attr.pkey_index < 2;
  if (attr.state == abi::kQpReadyToSend) return attr.send_psn < kMost;
  const auto& way = attr.address;
  return attr.mtu >= 1 && attr.mtu <= 5 && attr.receive_psn < kMost && attr.peer_qp < kMost &&
         way.port == pair.attr.port && way.is_global == (ethernet ? 1 : 0) &&
         (ethernet || way.lid != 0) &&
         (!ethernet || way.global.source_index < state().fabric.gids) && !device.name.empty();
}

}  // namespace

State& state() {
  static State state;
  return state;
}

int post_send(abi::Qp* qp, abi::SendWr* request, abi::SendWr**) {
  const Lock lock(state().mutex);
  auto& pair = *static_cast<Pair*>(qp);
  const bool broken = pair.attr.state == abi::kQpError;
  const bool inlined = (request->flags & abi::kInline) != 0;
  if (pair.attr.state != abi::kQpReadyToSend && !broken) return EINVAL;
  if (pair.outstanding >= pair.limits.sends) return ENOMEM;
  const auto n_parts = static_cast<uint32_t>(request->n_parts);
  if (request->next != nullptr || n_parts < 1 || n_parts > pair.limits.send_parts) return EINVAL;
  const abi::Sge part = *request->parts;
  if (inlined && part.length > pair.limits.inline_bytes) return ENOMEM;
  ++state().fabric.posts;
  ++pair.outstanding;
  if (broken) return complete_send(pair, request->id, abi::kWcFlushed), 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(part.address);
  pair.requests.push_back(
      {*request, {request->parts, request->parts + n_parts}, {}, draw_lateness()});
  if (inlined) pair.requests.back().inlined.assign(bytes, bytes + part.length);
  return 0;
}

int post_recv(abi::Qp* qp, abi::RecvWr* request, abi::RecvWr**) {
  const Lock lock(state().mutex);
  auto& pair = *static_cast<Pair*>(qp);
  if (pair.receives.size() >= pair.limits.receives) return ENOMEM;
  if (pair.attr.state == abi::kQpReset || request->n_parts > 1) return EINVAL;
  ++state().fabric.posts;
  pair.receives.emplace_back(request->id, request->n_parts > 0 ? *request->parts : abi::Sge{});
  if (pair.attr.state == abi::kQpError) complete_receive(pair, {}, abi::kWcFlushed);
  return 0;
}

// A late completion lets those behind it pass, as arrivals and acknowledgements do; sends keep
// their order.
int poll_cq(abi::Cq* cq, int n, abi::Wc* into) {
  const Lock lock(state().mutex);
  ++state().fabric.polls;
  for (const auto& [number, pair] : state().pairs) move(*pair);
  auto& queue = *static_cast<Queue*>(cq);
  int got = 0;
  bool sends_wait = false;
  for (auto at = queue.entries.begin(); at != queue.entries.end() && got < n;) {
    if (at->late > 0) --at->late;
    if (at->is_send && (sends_wait || at->late > 0 || state().fabric.holds_sends)) {
      sends_wait = true;
      ++at;
      continue;
    }
    if (at->is_send) --state().pairs.at(at->completion.qp)->outstanding;
    into[got++] = at->completion;
    at = queue.entries.erase(at);
  }
  return got;
}

// Makes an event at once if requests are under way: the poll after it moves them.
int req_notify_cq(abi::Cq* cq, int) {
  const Lock lock(state().mutex);
  ++state().fabric.arms;
  auto& queue = *static_cast<Queue*>(cq);
  queue.armed = true;
  const bool moves = std::any_of(state().pairs.begin(), state().pairs.end(), [&](const auto& one) {
    return one.second->send_cq == cq && !one.second->requests.empty();
  });
  if (moves || !queue.entries.empty()) make_event(queue);
  return 0;
}

int modify_qp(abi::Qp* qp, abi::QpAttr* attr, int mask) {
  constexpr int kMasks[] = {0, abi::kSetState | abi::kSetPkey | abi::kSetPort | abi::kSetAccess,
                            abi::kSetState | abi::kSetAddress | abi::kSetMtu | abi::kSetPeerQp |
                                abi::kSetReceivePsn | abi::kSetMaxPeerReads | abi::kSetMinRnrTimer,
                            abi::kSetState | abi::kSetSendPsn | abi::kSetTimeout |
                                abi::kSetRetries | abi::kSetRnrRetries | abi::kSetMaxReads};
  const Lock lock(state().mutex);
  auto& pair = *static_cast<Pair*>(qp);
  abi::QpAttr& now = pair.attr;
  if (attr->state != now.state + 1 || attr->state > abi::kQpReadyToSend ||
      mask != kMasks[attr->state] || !is_sound(pair, *attr))
    return EINVAL;
  if (attr->state == abi::kQpReadyToReceive && state().fabric.connect_failure != 0)
    return state().fabric.connect_failure;
  pair.reads = attr->state == abi::kQpReadyToReceive ? attr->max_peer_reads : attr->max_reads;
  const abi::QpAttr before = std::exchange(now, *attr);
  if (attr->state != abi::kQpInit) {
    now.port = before.port;
    now.pkey_index = before.pkey_index;
    now.access = before.access;
  }
  if (attr->state != abi::kQpReadyToSend) return 0;
  now.address = before.address;
  now.mtu = before.mtu;
  now.peer_qp = before.peer_qp;
  now.receive_psn = before.receive_psn;
  return 0;
}

}  // namespace hetccl::fake::rdma
