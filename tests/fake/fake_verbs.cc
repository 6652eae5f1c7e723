#include "fake/fake_verbs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>

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

struct State {
  std::mutex mutex;
  VerbsFabric fabric;
  std::mt19937 random;
  std::map<uint32_t, Pair*> pairs;
  std::map<uint32_t, abi::Mr*> regions;  // by key
  std::map<abi::Mr*, int> access;
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

// Where `key` lets `bytes` at `address` be reached; null otherwise.
void* reach(uint32_t key, uint64_t address, size_t bytes, int access) {
  const auto found = state().regions.find(key);
  if (found == state().regions.end()) return nullptr;
  abi::Mr* mr = found->second;
  const auto begin = reinterpret_cast<uint64_t>(mr->address);
  if (address < begin || address + bytes > begin + mr->length) return nullptr;
  return (state().access[mr] & access) == access ? reinterpret_cast<void*>(address) : nullptr;
}

// The status with which a request completes.
int deliver(Pair& from, const abi::SendWr& request) {
  const abi::Sge& part = *request.parts;
  const bool inlined = (request.flags & abi::kInline) != 0;
  const void* data = inlined ? reinterpret_cast<void*>(part.address)
                             : reach(part.lkey, part.address, part.length, 0);
  if (data == nullptr) return ++state().fabric.violations, 4;  // IBV_WC_LOC_PROT_ERR
  const auto found = state().pairs.find(from.peer);
  if (found == state().pairs.end() || found->second->state < abi::kQpReadyToReceive)
    return abi::kWcRetryExceeded;
  Pair& to = *found->second;
  if (to.receives.empty()) return ++state().fabric.not_ready, abi::kWcRnrExceeded;
  const auto [id, slot] = to.receives.front();
  abi::Wc arrival{};
  arrival.id = id;
  arrival.bytes = part.length;
  arrival.opcode = abi::kWcRecv;
  void* target = reach(slot.lkey, slot.address, part.length, abi::kLocalWrite);
  if (request.opcode == abi::kRdmaWriteWithImm) {
    arrival.opcode = abi::kWcRecvRdmaWithImm;
    arrival.immediate = request.immediate;
    target = reach(request.remote.rkey, request.remote.address, part.length, abi::kRemoteWrite);
  }
  if (target == nullptr) return ++state().fabric.violations, 10;  // IBV_WC_REM_ACCESS_ERR
  std::memcpy(target, data, part.length);
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

abi::Mr* reg_mr(abi::Pd* pd, void* address, size_t bytes, int access) {
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
  return mr;
}

int dereg_mr(abi::Mr* mr) {
  const Lock lock(state().mutex);
  state().regions.erase(mr->lkey);
  state().access.erase(mr);
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
  const int64_t regions = rdma::state().fabric.regions, pairs = rdma::state().fabric.queue_pairs;
  rdma::state().fabric = VerbsFabric();
  rdma::state().fabric.regions = regions;
  rdma::state().fabric.queue_pairs = pairs;
  return rdma::state().fabric;
}

VerbsFabric& verbs_fabric() {
  return rdma::state().fabric;
}

std::shared_ptr<const transport::verbs::Api> verbs_api() {
  return std::make_shared<const transport::verbs::Api>(rdma::make_api());
}

}  // namespace hetccl::fake
