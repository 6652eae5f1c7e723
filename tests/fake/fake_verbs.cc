#include "fake/fake_verbs.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

namespace hetccl::fake {
namespace rdma {  // test doubles are compiled in one unit
namespace {

namespace abi = transport::verbs::abi;

struct Queue;
struct Channel : abi::CompletionChannel {
  std::deque<Queue*> events;
};
struct Queue : abi::Cq {
  struct Entry {
    abi::Wc completion;
    uint32_t late = 0;
  };
  std::deque<Entry> entries;
  size_t room = 0;
  bool armed = false;
};
struct Pair : abi::Qp {
  std::deque<std::pair<uint64_t, abi::Sge>> receives;
  uint32_t peer = 0, sent = 0, outstanding = 0;
  abi::QpLimits limits{};
  int state = abi::kQpReset;
  bool broken = false;
};

// Where a dma-buf's pages are mapped, and what waits to be seen there.
struct DmaBuf {
  std::byte* mapped = nullptr;
  size_t mapped_bytes = 0, offset = 0;
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> held;
};

struct State {
  std::mutex mutex;
  VerbsFabric fabric;
  std::mt19937 random;
  std::map<uint32_t, Pair*> pairs;
  std::map<uint32_t, abi::Mr*> regions;  // by key
  std::map<abi::Mr*, int> access;
  std::map<abi::Mr*, DmaBuf> dmabufs;
  std::map<abi::Pd*, int> regions_of;
  uint32_t next = 100;
};
State& state() {
  static State state;
  return state;
}
using Lock = std::lock_guard<std::mutex>;

void complete(Queue& queue, const abi::Wc& completion, uint32_t late) {
  if (queue.entries.size() >= queue.room) ++state().fabric.overflows;
  queue.entries.push_back({completion, late});
  auto& channel = *static_cast<Channel*>(queue.channel);
  if (!std::exchange(queue.armed, false)) return;
  channel.events.push_back(&queue);
  const uint64_t one = 1;
  (void)!::write(channel.fd, &one, sizeof one);
}

// Where `key` lets `bytes` at `address` be reached, and in which region; null otherwise.
struct Reached {
  std::byte* data = nullptr;
  DmaBuf* dmabuf = nullptr;
};
Reached reach(uint32_t key, uint64_t address, size_t bytes, int access) {
  const auto found = state().regions.find(key);
  if (found == state().regions.end()) return {};
  abi::Mr* mr = found->second;
  const auto begin = reinterpret_cast<uint64_t>(mr->address);
  if (address < begin || address + bytes > begin + mr->length) return {};
  if ((state().access[mr] & access) != access) return {};
  const auto dmabuf = state().dmabufs.find(mr);
  if (dmabuf == state().dmabufs.end()) return {reinterpret_cast<std::byte*>(address)};
  state().fabric.device_bytes += bytes;
  DmaBuf& one = dmabuf->second;
  return {one.mapped + one.offset + (address - begin), &one};
}

void see_held(DmaBuf& dmabuf) {
  for (auto& [at, bytes] : dmabuf.held) std::memcpy(at, bytes.data(), bytes.size());
  dmabuf.held.clear();
}

void put(const Reached& to, const std::vector<std::byte>& bytes) {
  if (to.dmabuf != nullptr && state().fabric.holds_writes)
    to.dmabuf->held.emplace_back(to.data, bytes);
  else if (!bytes.empty())
    std::memcpy(to.data, bytes.data(), bytes.size());
}

// What a request sends; nothing where it may not.
std::optional<std::vector<std::byte>> gather(const abi::SendWr& request) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < request.n_parts; ++i) {
    const abi::Sge& part = request.parts[i];
    const bool inlined = (request.flags & abi::kInline) != 0;
    const auto* data = inlined ? reinterpret_cast<std::byte*>(part.address)
                               : reach(part.lkey, part.address, part.length, 0).data;
    if (data == nullptr) return {};
    bytes.insert(bytes.end(), data, data + part.length);
  }
  return bytes;
}

int violation(int status) {
  ++state().fabric.violations;
  return status;
}
constexpr int kLocalProtection = 4, kRemoteAccess = 10;  // IBV_WC_LOC_PROT_ERR, REM_ACCESS_ERR

int read_remote(const abi::SendWr& request) {
  const abi::Sge& into = *request.parts;
  const Reached from =
      reach(request.remote.rkey, request.remote.address, into.length, abi::kRemoteRead);
  const Reached to = reach(into.lkey, into.address, into.length, abi::kLocalWrite);
  if (from.data == nullptr || to.data == nullptr) return violation(kRemoteAccess);
  if (from.dmabuf != nullptr) see_held(*from.dmabuf);
  std::memcpy(to.data, from.data, into.length);
  return abi::kWcSuccess;
}

// The status with which a request completes.
int deliver(Pair& from, const abi::SendWr& request) {
  const auto found = state().pairs.find(from.peer);
  if (found == state().pairs.end() || found->second->state < abi::kQpReadyToReceive)
    return abi::kWcRetryExceeded;
  Pair& to = *found->second;
  if (request.opcode == abi::kRdmaRead) return read_remote(request);
  const auto bytes = gather(request);
  if (!bytes) return violation(kLocalProtection);
  const bool writes = request.opcode != abi::kSend, arrives = request.opcode != abi::kRdmaWrite;
  if (arrives && to.receives.empty()) return ++state().fabric.not_ready, abi::kWcRnrExceeded;
  const abi::Sge slot = arrives ? to.receives.front().second : abi::Sge{};
  const Reached target =
      writes ? reach(request.remote.rkey, request.remote.address, bytes->size(), abi::kRemoteWrite)
             : reach(slot.lkey, slot.address, bytes->size(), abi::kLocalWrite);
  if (target.data == nullptr) return violation(kRemoteAccess);
  put(target, *bytes);
  if (!arrives) return abi::kWcSuccess;
  abi::Wc arrival{};
  arrival.id = to.receives.front().first;
  arrival.bytes = static_cast<uint32_t>(bytes->size());
  arrival.opcode = writes ? abi::kWcRecvRdmaWithImm : abi::kWcRecv;
  arrival.immediate = writes ? request.immediate : 0;
  to.receives.pop_front();
  complete(*static_cast<Queue*>(to.receive_cq), arrival, 0);
  return abi::kWcSuccess;
}

int post_send(abi::Qp* qp, abi::SendWr* request, abi::SendWr**) {
  const Lock lock(state().mutex);
  auto& pair = *static_cast<Pair*>(qp);
  if (pair.state != abi::kQpReadyToSend) return EINVAL;
  if (pair.outstanding >= pair.limits.sends) return ENOMEM;
  ++pair.outstanding;
  const VerbsFabric& fabric = state().fabric;
  abi::Wc done{};
  done.id = request->id;
  done.qp = pair.number;
  done.vendor_error = 0x81;
  const bool fails = fabric.fails_from > 0 && ++pair.sent >= fabric.fails_from;
  done.status = pair.broken ? abi::kWcFlushed : fails ? fabric.failure : deliver(pair, *request);
  pair.broken |= done.status != abi::kWcSuccess;
  const uint32_t late = fabric.late > 0 ? static_cast<uint32_t>(state().random() % fabric.late) : 0;
  complete(*static_cast<Queue*>(pair.send_cq), done, late);
  return 0;
}

int post_recv(abi::Qp* qp, abi::RecvWr* request, abi::RecvWr**) {
  const Lock lock(state().mutex);
  auto& pair = *static_cast<Pair*>(qp);
  if (pair.receives.size() >= pair.limits.receives) return ENOMEM;
  pair.receives.emplace_back(request->id, *request->parts);
  return 0;
}

// A late completion lets those behind it pass, as arrivals and acknowledgements do; sends keep
// their order.
int poll_cq(abi::Cq* cq, int n, abi::Wc* into) {
  const Lock lock(state().mutex);
  auto& queue = *static_cast<Queue*>(cq);
  int got = 0;
  bool sends_wait = false;
  for (auto at = queue.entries.begin(); at != queue.entries.end() && got < n;) {
    const bool is_send = at->completion.qp != 0;
    if (at->late > 0) --at->late;
    if (is_send && (sends_wait || at->late > 0)) {
      sends_wait = true;
      ++at;
      continue;
    }
    if (is_send) --state().pairs.at(at->completion.qp)->outstanding;
    into[got++] = at->completion;
    at = queue.entries.erase(at);
  }
  return got;
}

int req_notify_cq(abi::Cq* cq, int) {
  const Lock lock(state().mutex);
  auto& queue = *static_cast<Queue*>(cq);
  queue.armed = true;
  if (queue.entries.empty()) return 0;
  // Late ones "come" after this.
  const Queue::Entry last = queue.entries.back();
  queue.entries.pop_back();
  complete(queue, last.completion, last.late);
  return 0;
}

abi::Device** list_devices(int* n) {
  const Lock lock(state().mutex);
  const auto& names = state().fabric.devices;
  auto** list = new abi::Device*[names.size() + 1]();
  for (size_t i = 0; i < names.size(); ++i) {
    list[i] = new abi::Device();
    std::strncpy(list[i]->name, names[i].c_str(), sizeof list[i]->name - 1);
  }
  *n = static_cast<int>(names.size());
  return list;
}

void free_devices(abi::Device** list) {
  for (size_t i = 0; list[i] != nullptr; ++i) delete list[i];
  delete[] list;
}

abi::Context* open_device(abi::Device*) {
  auto* context = new abi::Context();
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  return context;
}

int query_port(abi::Context*, uint8_t port, abi::PortAttr* attr) {
  if (port != 1) return EINVAL;
  const Lock lock(state().mutex);
  attr->state = state().fabric.port_state;
  attr->active_mtu = 5;
  attr->gid_table_length = 3;
  attr->pkey_table_length = 2;
  attr->link_layer = abi::kLinkEthernet;
  return 0;
}

// Link-local, version 1 over IPv4, version 2 over IPv4.
int query_gid(abi::Context*, uint32_t, uint32_t index, abi::GidEntry* entry, uint32_t, size_t) {
  const Lock lock(state().mutex);
  if (!state().fabric.has_gid || index > 2) return ENODATA;
  entry->index = index;
  entry->type = index == 1 ? abi::kGidRoceV1 : abi::kGidRoceV2;
  const uint8_t local[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};
  const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  std::memcpy(entry->gid.raw, index == 0 ? local : mapped, sizeof local);
  return 0;
}

int query_pkey(abi::Context*, uint8_t, int index, uint16_t* key) {
  *key = index == 0 ? 0xffff : 0x0280;  // the second is 0x8002, big endian
  return 0;
}

abi::Mr* make_region(abi::Pd* pd, void* address, size_t bytes, int access) {
  const Lock lock(state().mutex);
  VerbsFabric& fabric = state().fabric;
  if (fabric.fail_registrations > 0 && state().regions_of[pd] > 1) {  // its slots, and a chunk
    --fabric.fail_registrations;
    errno = ENOMEM;
    return nullptr;
  }
  const uint32_t key = state().next++;
  auto* mr = new abi::Mr{pd->context, pd, address, bytes, 0, key, key};
  state().regions[key] = mr;
  state().access[mr] = access;
  ++state().regions_of[pd];
  ++fabric.regions;
  ++fabric.registered;
  return mr;
}

// Pages that nobody may touch, a device's, cannot be pinned.
bool is_mapped(const void* address) {
  std::byte byte{};
  iovec local{&byte, 1}, remote{const_cast<void*>(address), 1};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

abi::Mr* reg_mr(abi::Pd* pd, void* address, size_t bytes, int access) {
  if (is_mapped(address)) return make_region(pd, address, bytes, access);
  errno = EFAULT;
  return nullptr;
}

abi::Mr* reg_dmabuf_mr(abi::Pd* pd, uint64_t offset, size_t bytes, uint64_t address, int fd,
                       int access) {
  if (!state().fabric.dmabufs) return errno = EOPNOTSUPP, nullptr;
  DmaBuf dmabuf;
  constexpr size_t kPage = 4096;
  dmabuf.offset = offset % kPage;
  dmabuf.mapped_bytes = dmabuf.offset + bytes;
  void* mapped = ::mmap(nullptr, dmabuf.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                        static_cast<off_t>(offset - dmabuf.offset));
  if (mapped == MAP_FAILED) return nullptr;
  dmabuf.mapped = static_cast<std::byte*>(mapped);
  abi::Mr* mr = make_region(pd, reinterpret_cast<void*>(address), bytes, access);
  if (mr == nullptr) return ::munmap(mapped, dmabuf.mapped_bytes), nullptr;
  const Lock lock(state().mutex);
  state().dmabufs.emplace(mr, std::move(dmabuf));
  ++state().fabric.dmabuf_regions;
  return mr;
}

int dereg_mr(abi::Mr* mr) {
  const Lock lock(state().mutex);
  state().regions.erase(mr->lkey);
  state().access.erase(mr);
  if (const auto dmabuf = state().dmabufs.extract(mr); !dmabuf.empty()) {
    ::munmap(dmabuf.mapped().mapped, dmabuf.mapped().mapped_bytes);
    --state().fabric.dmabuf_regions;
  }
  --state().regions_of[mr->pd];
  --state().fabric.regions;
  delete mr;
  return 0;
}

abi::CompletionChannel* create_comp_channel(abi::Context* context) {
  auto* channel = new Channel();
  channel->context = context;
  channel->fd = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  return channel;
}

int destroy_comp_channel(abi::CompletionChannel* channel) {
  ::close(channel->fd);
  delete static_cast<Channel*>(channel);
  return 0;
}

abi::Cq* create_cq(abi::Context* context, int entries, void* user, abi::CompletionChannel* channel,
                   int) {
  auto* queue = new Queue();
  queue->context = context;
  queue->channel = channel;
  queue->user = user;
  queue->room = static_cast<size_t>(entries);
  return queue;
}

int destroy_cq(abi::Cq* cq) {
  const Lock lock(state().mutex);
  auto* queue = static_cast<Queue*>(cq);
  auto& channel = *static_cast<Channel*>(queue->channel);
  for (size_t n = std::erase(channel.events, queue); n > 0; --n) {
    uint64_t one = 0;
    (void)!::read(channel.fd, &one, sizeof one);
  }
  delete queue;
  return 0;
}

int get_cq_event(abi::CompletionChannel* events, abi::Cq** cq, void** user) {
  const Lock lock(state().mutex);
  auto& channel = *static_cast<Channel*>(events);
  uint64_t one = 0;
  if (channel.events.empty() || ::read(channel.fd, &one, sizeof one) < 0) return -1;
  *cq = channel.events.front();
  *user = channel.events.front()->user;
  channel.events.pop_front();
  return 0;
}

abi::Qp* create_qp(abi::Pd* pd, abi::QpInit* init) {
  const Lock lock(state().mutex);
  auto* pair = new Pair();
  pair->context = pd->context;
  pair->pd = pd;
  pair->send_cq = init->send_cq;
  pair->receive_cq = init->receive_cq;
  pair->number = state().next++;
  pair->limits = init->limits;
  state().pairs[pair->number] = pair;
  ++state().fabric.queue_pairs;
  return pair;
}

int modify_qp(abi::Qp* qp, abi::QpAttr* attr, int mask) {
  const Lock lock(state().mutex);
  auto& pair = *static_cast<Pair*>(qp);
  if (attr->state != pair.state + 1) return EINVAL;
  pair.state = attr->state;
  if ((mask & abi::kSetPeerQp) != 0) pair.peer = attr->peer_qp;
  return 0;
}

int destroy_qp(abi::Qp* qp) {
  const Lock lock(state().mutex);
  state().pairs.erase(qp->number);
  --state().fabric.queue_pairs;
  delete static_cast<Pair*>(qp);
  return 0;
}

transport::verbs::Api make_api() {
  transport::verbs::Api api;
  api.path = "fake";
  api.list_devices = list_devices;
  api.free_devices = free_devices;
  api.open_device = open_device;
  api.close_device = [](abi::Context* context) { return delete context, 0; };
  api.query_port = query_port;
  api.query_gid = query_gid;
  api.query_pkey = query_pkey;
  api.alloc_pd = [](abi::Context* context) { return new abi::Pd{context, 0}; };
  api.dealloc_pd = [](abi::Pd* pd) { return delete pd, 0; };
  api.reg_mr = reg_mr;
  api.reg_dmabuf_mr = reg_dmabuf_mr;
  api.dereg_mr = dereg_mr;
  api.create_comp_channel = create_comp_channel;
  api.destroy_comp_channel = destroy_comp_channel;
  api.create_cq = create_cq;
  api.destroy_cq = destroy_cq;
  api.get_cq_event = get_cq_event;
  api.ack_cq_events = [](abi::Cq*, unsigned) {};
  api.create_qp = create_qp;
  api.modify_qp = modify_qp;
  api.destroy_qp = destroy_qp;
  api.status_text = [](int status) {
    return status == abi::kWcRetryExceeded ? "transport retry counter exceeded" : "another error";
  };
  return api;
}

}  // namespace
}  // namespace rdma

VerbsFabric& reset_verbs_fabric() {
  const rdma::Lock lock(rdma::state().mutex);
  const VerbsFabric before = rdma::state().fabric;
  VerbsFabric& fabric = rdma::state().fabric = VerbsFabric();
  fabric.regions = before.regions;
  fabric.dmabuf_regions = before.dmabuf_regions;
  fabric.queue_pairs = before.queue_pairs;
  return fabric;
}

VerbsFabric& verbs_fabric() {
  return rdma::state().fabric;
}

std::shared_ptr<const transport::verbs::Api> verbs_api() {
  return std::make_shared<const transport::verbs::Api>(rdma::make_api());
}

}  // namespace hetccl::fake
