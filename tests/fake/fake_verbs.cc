#include "fake/fake_verbs.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fake/fake_verbs_wire.h"

namespace hetccl::fake {
namespace rdma {

uint16_t lid_of(const OpenDevice& device, int port) {
  constexpr int kFirst = 7;
  return static_cast<uint16_t>(kFirst + device.index * 4 + port);
}

// Returns the subnet's prefix and the port for InfiniBand; for Ethernet the link-local address,
// then 10.0.device.port.
abi::Gid gid_of(const OpenDevice& device, int port, uint32_t index) {
  const auto d = static_cast<uint8_t>(device.index), p = static_cast<uint8_t>(port);
  if (state().fabric.link == abi::kLinkInfiniBand || index == 0)
    return {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, d, p}};
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, d, p}};
}

void add_event(OpenDevice& device, int type, void* element) {
  abi::AsyncEvent event{};
  event.of.any = element;
  event.type = type;
  device.async.push_back(event);
  const uint64_t one = 1;
  (void)!::write(device.async_fd, &one, sizeof one);
}

namespace {

abi::Device** list_devices(int* n) {
  const Lock lock(state().mutex);
  const auto& names = state().fabric.devices;
  auto** list = new abi::Device*[names.size() + 1]();
  for (size_t i = 0; i < names.size(); ++i) {
    list[i] = new abi::Device();
    std::strncpy(list[i]->name, names[i].c_str(), sizeof list[i]->name - 1);
    const auto& folders = state().fabric.folders;
    if (i < folders.size())
      std::strncpy(list[i]->ibdev_path, folders[i].c_str(), sizeof list[i]->ibdev_path - 1);
  }
  *n = static_cast<int>(names.size());
  return list;
}

void free_devices(abi::Device** list) {
  for (size_t i = 0; list[i] != nullptr; ++i) delete list[i];
  delete[] list;
}

abi::Context* open_device(abi::Device* device) {
  const Lock lock(state().mutex);
  auto* context = new OpenDevice();
  context->name = device->name;
  const auto& names = state().fabric.devices;
  context->index =
      static_cast<int>(std::find(names.begin(), names.end(), context->name) - names.begin());
  context->async_fd = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  state().opened.push_back(context);
  return context;
}

int close_device(abi::Context* context) {
  const Lock lock(state().mutex);
  auto* device = static_cast<OpenDevice*>(context);
  if (device->unacknowledged > 0) ++state().fabric.violations;
  std::erase(state().opened, device);
  ::close(device->async_fd);
  delete device;
  return 0;
}

int query_port(abi::Context* context, uint8_t port, abi::PortAttr* attr) {
  const Lock lock(state().mutex);
  const VerbsFabric& fabric = state().fabric;
  if (port < 1 || port > fabric.ports) return EINVAL;
  const auto& device = *static_cast<OpenDevice*>(context);
  const bool infiniband = fabric.link == abi::kLinkInfiniBand;
  attr->state = fabric.port_state;
  attr->active_mtu = 5;
  attr->gid_table_length = fabric.gids;
  attr->pkey_table_length = 2;
  attr->link_layer = fabric.link;
  attr->lid = infiniband ? lid_of(device, port) : 0;
  attr->active_width = 2;   // 4 lanes
  attr->active_speed = 32;  // of 25 Gbit/s
  if (fabric.adjust) fabric.adjust(device.name + ":" + std::to_string(port), *attr);
  return 0;
}

int query_gid(abi::Context* context, uint32_t port, uint32_t index, abi::GidEntry* entry, uint32_t,
              size_t) {
  const Lock lock(state().mutex);
  if (index >= static_cast<uint32_t>(state().fabric.gids)) return ENODATA;
  entry->index = index;
  entry->port = port;
  entry->type = index == 1 ? abi::kGidRoceV1 : abi::kGidRoceV2;
  if (state().fabric.link == abi::kLinkInfiniBand) entry->type = abi::kGidIb;
  entry->gid = gid_of(*static_cast<OpenDevice*>(context), static_cast<int>(port), index);
  return 0;
}

int query_pkey(abi::Context*, uint8_t, int index, uint16_t* key) {
  *key = index == 0 ? 0xffff : 0x0280;  // the second is 0x8002, big endian
  return 0;
}

// Whether a registration finds no memory: only of a chunk beside another that ends by itself.
bool is_short(abi::Pd* pd, size_t bytes, int access) {
  VerbsFabric& fabric = state().fabric;
  if (state().locked[pd] + bytes > fabric.lockable) return true;
  const bool written = access == 0;
  const auto goes_on = [&](const auto& one) {
    return one.first->pd == pd && (one.second == 0 || (!written && one.second != abi::kLocalWrite));
  };
  const auto& all = state().access;
  if (fabric.fail_registrations == 0 || std::none_of(all.begin(), all.end(), goes_on)) return false;
  --fabric.fail_registrations;
  return true;
}

// The kernel counts whole pages.
size_t locked_by(const void* address, size_t bytes) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return (begin + bytes + kPage - 1) / kPage * kPage - begin / kPage * kPage;
}

abi::Mr* make_region(abi::Pd* pd, void* address, size_t bytes, int access) {
  const Lock lock(state().mutex);
  const bool writes = (access & abi::kRemoteWrite) != 0;
  if (writes && (access & abi::kLocalWrite) == 0) return errno = EINVAL, nullptr;
  const size_t locked = locked_by(address, bytes);
  if (is_short(pd, locked, access)) return errno = ENOMEM, nullptr;
  const uint32_t key = state().next++;
  auto* mr = new abi::Mr{pd->context, pd, address, bytes, 0, key, key};
  state().regions[key] = mr;
  state().access[mr] = access;
  state().locked[pd] += locked;
  ++state().fabric.regions;
  ++state().fabric.registered;
  return mr;
}

// Pages of a device, which the host may not touch, cannot be pinned.
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

void unmap(const DmaBuf& dmabuf) {
  if (dmabuf.mapped_bytes > 0) ::munmap(dmabuf.mapped, dmabuf.mapped_bytes);
}

abi::Mr* reg_dmabuf_mr(abi::Pd* pd, uint64_t offset, size_t bytes, uint64_t address, int fd,
                       int access) {
  const VerbsFabric& fabric = state().fabric;
  if (!fabric.dmabufs) return errno = EOPNOTSUPP, nullptr;
  if (fabric.refuses_dmabuf && fabric.refuses_dmabuf(bytes)) return errno = ENOMEM, nullptr;
  auto* const pages = reinterpret_cast<std::byte*>(address);
  DmaBuf dmabuf;
  dmabuf.mapped = pages;
  if (!fabric.copy) {
    constexpr size_t kPage = 4096;
    dmabuf.offset = offset % kPage;
    dmabuf.mapped_bytes = dmabuf.offset + bytes;
    void* mapped = ::mmap(nullptr, dmabuf.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                          static_cast<off_t>(offset - dmabuf.offset));
    if (mapped == MAP_FAILED) return nullptr;
    dmabuf.mapped = static_cast<std::byte*>(mapped);
  }
  abi::Mr* mr = make_region(pd, pages, bytes, access);
  if (mr == nullptr) return unmap(dmabuf), nullptr;
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
    unmap(dmabuf.mapped());
    --state().fabric.dmabuf_regions;
  }
  state().locked[mr->pd] -= locked_by(mr->address, mr->length);
  --state().fabric.regions;
  delete mr;
  return 0;
}

int dealloc_pd(abi::Pd* pd) {
  const Lock lock(state().mutex);
  const auto used = [pd](const auto& one) { return one.second->pd == pd; };
  if (state().locked[pd] > 0 || std::any_of(state().pairs.begin(), state().pairs.end(), used))
    ++state().fabric.violations;
  state().locked.erase(pd);
  delete pd;
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
  const Lock lock(state().mutex);
  auto* queue = new Queue();
  queue->context = context;
  queue->channel = channel;
  queue->user = user;
  queue->room = static_cast<size_t>(entries);
  state().queues.push_back(queue);
  return queue;
}

void take_back(int fd, size_t events) {
  for (uint64_t one = 0; events > 0; --events) (void)!::read(fd, &one, sizeof one);
}

// An event that is not acknowledged would block a call of the device for ever.
int destroy_cq(abi::Cq* cq) {
  const Lock lock(state().mutex);
  auto* queue = static_cast<Queue*>(cq);
  if (queue->unacknowledged > 0) ++state().fabric.violations;
  auto& channel = *static_cast<Channel*>(queue->channel);
  take_back(channel.fd, std::erase(channel.events, queue));
  std::erase(state().queues, queue);
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
  ++channel.events.front()->unacknowledged;
  channel.events.pop_front();
  return 0;
}

void ack_cq_events(abi::Cq* cq, unsigned n) {
  const Lock lock(state().mutex);
  static_cast<Queue*>(cq)->unacknowledged -= n;
}

int get_async_event(abi::Context* context, abi::AsyncEvent* event) {
  const Lock lock(state().mutex);
  auto& device = *static_cast<OpenDevice*>(context);
  uint64_t one = 0;
  if (device.async.empty() || ::read(device.async_fd, &one, sizeof one) < 0) return -1;
  *event = device.async.front();
  device.async.pop_front();
  ++device.unacknowledged;
  return 0;
}

void ack_async_event(abi::AsyncEvent* event) {
  const Lock lock(state().mutex);
  for (OpenDevice* device : state().opened) {
    const bool whole = event->type == abi::kEventDeviceFatal || event->of.any == device;
    const bool its = whole || (event->type == abi::kEventCqError ? event->of.cq->context == device
                                                                 : event->of.qp->context == device);
    if (its && device->unacknowledged > 0) {
      --device->unacknowledged;
      return;
    }
  }
}

abi::Qp* create_qp(abi::Pd* pd, abi::QpInit* init) {
  const Lock lock(state().mutex);
  if (init->limits.inline_bytes > state().fabric.inline_bytes) return errno = EINVAL, nullptr;
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

int destroy_qp(abi::Qp* qp) {
  const Lock lock(state().mutex);
  for (OpenDevice* device : state().opened)
    take_back(device->async_fd,
              std::erase_if(device->async, [&](const auto& event) { return event.of.any == qp; }));
  state().pairs.erase(qp->number);
  --state().fabric.queue_pairs;
  delete static_cast<Pair*>(qp);
  return 0;
}

int fork_init() {
  const Lock lock(state().mutex);
  ++state().fabric.fork_inits;
  return state().fabric.fork_init_fails ? EINVAL : 0;
}

transport::verbs::Api make_api() {
  transport::verbs::Api api;
  api.path = "fake";
  api.list_devices = list_devices;
  api.free_devices = free_devices;
  api.open_device = open_device;
  api.close_device = close_device;
  api.query_port = query_port;
  api.query_gid = query_gid;
  api.query_pkey = query_pkey;
  api.alloc_pd = [](abi::Context* context) { return new abi::Pd{context, 0}; };
  api.dealloc_pd = dealloc_pd;
  api.reg_mr = reg_mr;
  api.reg_dmabuf_mr = reg_dmabuf_mr;
  api.dereg_mr = dereg_mr;
  api.create_comp_channel = create_comp_channel;
  api.destroy_comp_channel = destroy_comp_channel;
  api.create_cq = create_cq;
  api.destroy_cq = destroy_cq;
  api.get_cq_event = get_cq_event;
  api.ack_cq_events = ack_cq_events;
  api.create_qp = create_qp;
  api.modify_qp = modify_qp;
  api.destroy_qp = destroy_qp;
  api.status_text = [](int status) {
    return status == abi::kWcRetryExceeded ? "transport retry counter exceeded" : "another error";
  };
  api.fork_init = fork_init;
  api.is_fork_initialized = [] { return state().fabric.fork_support; };
  api.get_async_event = get_async_event;
  api.ack_async_event = ack_async_event;
  api.event_text = [](int type) {
    return type == abi::kEventDeviceFatal ? "local catastrophic error" : "an event of a queue";
  };
  return api;
}

}  // namespace
}  // namespace rdma

VerbsFabric& reset_verbs_fabric(uint32_t seed) {
  const rdma::Lock lock(rdma::state().mutex);
  const int64_t regions = rdma::state().fabric.regions, pairs = rdma::state().fabric.queue_pairs;
  const int64_t dmabufs = rdma::state().fabric.dmabuf_regions;
  rdma::state().fabric = VerbsFabric();
  rdma::state().fabric.dmabuf_regions = dmabufs;
  rdma::state().fabric.regions = regions;
  rdma::state().fabric.queue_pairs = pairs;
  rdma::state().random.seed(seed);
  return rdma::state().fabric;
}

uint64_t count_registrations() {
  const rdma::Lock lock(rdma::state().mutex);
  return rdma::state().fabric.registered;
}

VerbsFabric& verbs_fabric() {
  return rdma::state().fabric;
}

void raise_verbs_event(int type) {
  namespace abi = transport::verbs::abi;
  const rdma::Lock lock(rdma::state().mutex);
  const auto device_of = [](void* context) { return static_cast<rdma::OpenDevice*>(context); };
  if (type == abi::kEventCqError) {
    for (rdma::Queue* queue : rdma::state().queues)
      add_event(*device_of(queue->context), type, static_cast<abi::Cq*>(queue));
  } else if (type == abi::kEventDeviceFatal) {
    for (rdma::OpenDevice* device : rdma::state().opened) add_event(*device, type, device);
  } else {
    for (const auto& [number, pair] : rdma::state().pairs)
      add_event(*device_of(pair->context), type, static_cast<abi::Qp*>(pair));
  }
}

std::shared_ptr<const transport::verbs::Api> verbs_api() {
  return std::make_shared<const transport::verbs::Api>(rdma::make_api());
}

}  // namespace hetccl::fake
