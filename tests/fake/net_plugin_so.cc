// Declared in net_plugin.h. A message on a socket is its length in four bytes, then its bytes.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fake/net_plugin.h"
#include "transport/ncclnet/abi.h"

namespace {

namespace abi = hetccl::transport::ncclnet::abi;
using hetccl::fake::NetPlugin;

constexpr uint64_t kMagic = 0x68657463636c6e65;
constexpr size_t kLengthBytes = sizeof(uint32_t);

struct Comm;

struct Request {
  Comm* comm = nullptr;
  char* data = nullptr;
  uint32_t bytes = 0;  // of a receive: room at first
  size_t moved = 0;    // the length included
  uint32_t length = 0;
  void* region = nullptr;
  uint32_t late = 0;
  bool complete = false;
  std::vector<char> held;  // arrived, and not visible yet
  char* seen_at = nullptr;
};

struct Comm {
  int fd = -1;
  bool sends = false;
  int error = abi::kSuccess;
  std::deque<Request*> queue;  // not complete
  std::map<Request*, std::unique_ptr<Request>> all;
};

struct Region {
  Comm* comm;
  char* data;
  size_t bytes;
  bool of_gpu = false;
  // The mapping of a dma-buf.
  void* mapped = nullptr;
  size_t mapped_bytes = 0;
  std::vector<std::pair<char*, std::vector<char>>> held = {};
  [[nodiscard]] char* reach(void* at) const {
    if (mapped == nullptr) return static_cast<char*>(at);
    return static_cast<char*>(mapped) + (static_cast<char*>(at) - data);
  }
};

// As in NCCL's own plug-in for InfiniBand, the handle keeps how far a connection is.
struct Handle {
  uint64_t magic;
  uint16_t port;
  int fd;
};

NetPlugin state;
std::mutex mutex;
std::mt19937 randomness;
std::map<void*, std::unique_ptr<Region>> regions;
abi::Logger logger = nullptr;
bool started = false;

bool works() {
  return state.works_one_in <= 1 || randomness() % state.works_one_in == 0;
}

int violate(const char* what) {
  ++state.violations;
  logger(abi::kLogWarn, 0, __FILE__, __LINE__, "violation: %s", what);
  return abi::kInternalError;
}

// --- bytes

ssize_t move_some(Request& request) {
  const int fd = request.comm->fd;
  const bool in_length = request.moved < kLengthBytes;
  char* at = in_length ? reinterpret_cast<char*>(&request.length) + request.moved
                       : request.data + (request.moved - kLengthBytes);
  const size_t left =
      in_length ? kLengthBytes - request.moved : request.bytes - (request.moved - kLengthBytes);
  return request.comm->sends ? ::send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                             : ::recv(fd, at, left, MSG_DONTWAIT);
}

// False where nothing moves any more now.
bool move_first(Comm& comm) {
  Request& first = *comm.queue.front();
  const ssize_t n = move_some(first);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (n <= 0) {
    comm.error = abi::kRemoteError;
    return false;
  }
  first.moved += static_cast<size_t>(n);
  if (!comm.sends && first.moved == kLengthBytes) {
    if (first.length > first.bytes) comm.error = abi::kInvalidUsage;
    first.bytes = std::min(first.length, first.bytes);
  }
  if (comm.error != abi::kSuccess) return false;
  if (first.moved < kLengthBytes + first.bytes) return true;
  first.complete = true;
  if (!first.held.empty())
    regions.at(first.region)->held.emplace_back(first.seen_at, std::move(first.held));
  if (comm.sends) state.sent_bytes += first.bytes;
  comm.queue.pop_front();
  return true;
}

void move(Comm& comm) {
  while (comm.error == abi::kSuccess && !comm.queue.empty() && move_first(comm)) {
  }
}

int begin(Comm& comm, void* data, size_t bytes, void* region, void** request) {
  *request = nullptr;
  const auto found = regions.find(region);
  if (found == regions.end() || found->second->comm != &comm || data < found->second->data ||
      static_cast<char*>(data) + bytes > found->second->data + found->second->bytes)
    return violate("memory that is not registered");
  if (comm.all.size() >= abi::kMaxRequests) return violate("too many requests");
  if (bytes > state.max_bytes) return violate("too many bytes");
  if (!works()) return abi::kSuccess;
  auto made = std::make_unique<Request>();
  made->comm = &comm;
  Region& memory = *found->second;
  made->data = memory.reach(data);
  if (memory.of_gpu) state.gpu_bytes += bytes;
  if (memory.of_gpu && state.holds_writes && !comm.sends) {
    made->seen_at = made->data;
    made->held.resize(bytes);
    made->data = made->held.data();
  }
  made->bytes = made->length = static_cast<uint32_t>(bytes);
  made->region = region;
  made->late = state.late > 0 ? static_cast<uint32_t>(randomness() % (state.late + 1)) : 0;
  *request = made.get();
  comm.queue.push_back(made.get());
  comm.all[made.get()] = std::move(made);
  const int64_t n = ++state.requests;
  state.most_requests = std::max<int64_t>(state.most_requests, n);
  move(comm);
  return abi::kSuccess;
}

// --- the interface

int start(abi::Logger log) {
  const std::lock_guard lock(mutex);
  logger = log;
  if (started) return violate("a second init");
  started = true;
  log(abi::kLogInfo, 0, __FILE__, __LINE__, "%s starts", "hetccltest");
  return abi::kSuccess;
}

int devices(int* n) {
  *n = state.devices;
  return abi::kSuccess;
}

template <typename Properties>
void fill(Properties& properties, size_t device) {
  static std::array<std::string, 16> names;
  names.at(device) = "hetccltest" + std::to_string(device);
  properties.name = names.at(device).data();
  const bool has_path = device < state.pci_paths.size();
  properties.pci_path = has_path ? state.pci_paths[device].data() : nullptr;
  properties.pointers = state.pointers;
  properties.mbps = 25'000;
  properties.port = 1;
  properties.latency = 2;
  properties.max_comms = state.max_comms;
  properties.max_receives = 1;
  if constexpr (requires { properties.force_flush; })
    properties.force_flush = state.force_flush ? 1 : 0;
  if constexpr (requires { properties.max_bytes; })
    properties.max_bytes = properties.max_collective_bytes = state.max_bytes;
}

template <typename Properties>
int get_properties(int device, Properties* properties) {
  const std::lock_guard lock(mutex);
  if constexpr (requires { properties->common; })
    fill(properties->common, static_cast<size_t>(device));
  else
    fill(*properties, static_cast<size_t>(device));
  return abi::kSuccess;
}

int listen_at(int device, void* handle, void** listener) {
  const std::lock_guard lock(mutex);
  state.listened_with = device;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const general = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || ::bind(fd, general, bytes) != 0 || ::listen(fd, 16) != 0 ||
      ::getsockname(fd, general, &bytes) != 0)
    return abi::kSystemError;
  new (handle) Handle{kMagic, address.sin_port, -1};
  state.last_port = ntohs(address.sin_port);
  auto made = std::make_unique<Comm>();
  made->fd = fd;
  ++state.comms;
  *listener = made.release();
  return abi::kSuccess;
}

int connect_to(int device, void* in_handle, void** sender) {
  const std::lock_guard lock(mutex);
  state.connected_with = device;
  *sender = nullptr;
  auto& handle = *static_cast<Handle*>(in_handle);
  if (handle.magic != kMagic) return abi::kInvalidArgument;
  if (state.never_connects || !works()) return abi::kSuccess;
  if (handle.fd < 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = handle.port;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    handle.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int result =
        ::connect(handle.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    return result == 0 || errno == EINPROGRESS ? abi::kSuccess : abi::kSystemError;
  }
  pollfd entry{handle.fd, POLLOUT, 0};
  if (::poll(&entry, 1, 0) != 1) return abi::kSuccess;
  if ((entry.revents & (POLLERR | POLLHUP)) != 0) return abi::kRemoteError;
  auto made = std::make_unique<Comm>();
  made->fd = handle.fd;
  made->sends = true;
  ++state.comms;
  *sender = made.release();
  return abi::kSuccess;
}

int accept_from(void* listener, void** receiver, void** /*offload*/) {
  const std::lock_guard lock(mutex);
  *receiver = nullptr;
  if (!works()) return abi::kSuccess;
  const int fd =
      ::accept4(static_cast<Comm*>(listener)->fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return errno == EAGAIN ? abi::kSuccess : abi::kSystemError;
  auto made = std::make_unique<Comm>();
  made->fd = fd;
  ++state.comms;
  *receiver = made.release();
  return abi::kSuccess;
}

int keep(Region made, void** region) {
  auto kept = std::make_unique<Region>(std::move(made));
  *region = kept.get();
  regions[*region] = std::move(kept);
  ++state.regions;
  ++state.registered;
  return abi::kSuccess;
}

// Memory of a GPU cannot be touched by its address.
bool is_mapped(const void* address) {
  char byte = 0;
  iovec local{&byte, 1}, remote{const_cast<void*>(address), 1};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

int register_memory(void* comm, void* data, size_t bytes, int type, void** region) {
  const std::lock_guard lock(mutex);
  if ((type & state.pointers) == 0) return violate("memory of another kind");
  if (!is_mapped(data)) return abi::kSystemError;
  if (state.fail_registrations > 0) {
    --state.fail_registrations;
    return abi::kSystemError;
  }
  Region made{static_cast<Comm*>(comm), static_cast<char*>(data), bytes};
  made.of_gpu = type == abi::kPointerCuda;
  if (made.of_gpu && state.refuses_gpus) return abi::kInternalError;
  return keep(std::move(made), region);
}

int register_dma_buf(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                     void** region) {
  const std::lock_guard lock(mutex);
  constexpr size_t kPage = 4096;
  if (type != abi::kPointerCuda || (state.pointers & abi::kPointerDmaBuf) == 0)
    return violate("memory of another kind");
  if (reinterpret_cast<uintptr_t>(data) % kPage != 0 || offset % kPage != 0)
    return violate("a dma-buf from within a page");
  if (state.refuses_gpus) return abi::kInternalError;
  Region made{static_cast<Comm*>(comm), static_cast<char*>(data), bytes};
  made.of_gpu = true;
  made.mapped_bytes = bytes;
  made.mapped =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (made.mapped == MAP_FAILED) return abi::kSystemError;
  return keep(std::move(made), region);
}

int flush(void* comm, int n, void** data, int* /*bytes*/, void** regions_of, void** request) {
  const std::lock_guard lock(mutex);
  auto& receiver = *static_cast<Comm*>(comm);
  const auto found = regions.find(*regions_of);
  if (n != 1 || receiver.sends || found == regions.end() || found->second->comm != comm ||
      !found->second->of_gpu || *data < found->second->data)
    return violate("a flush of what was not received");
  ++state.flushes;
  for (const auto& [at, held] : std::exchange(found->second->held, {}))
    std::memcpy(at, held.data(), held.size());
  *request = nullptr;
  if (!works()) return abi::kSuccess;  // it is done already
  auto made = std::make_unique<Request>();
  made->comm = &receiver;
  made->region = *regions_of;
  made->complete = true;
  *request = made.get();
  receiver.all[made.get()] = std::move(made);
  ++state.requests;
  return abi::kSuccess;
}

// Requests under way over that memory never touch it again.
int deregister(void* in_comm, void* region) {
  const std::lock_guard lock(mutex);
  auto& comm = *static_cast<Comm*>(in_comm);
  const auto found = regions.find(region);
  if (found == regions.end() || found->second->comm != in_comm) return violate("a region twice");
  if (found->second->mapped != nullptr)
    ::munmap(found->second->mapped, found->second->mapped_bytes);
  regions.erase(found);
  --state.regions;
  for (const Request* request : comm.queue)
    if (request->region == region) comm.error = abi::kInternalError;
  return abi::kSuccess;
}

int test(void* in_request, int* done, int* bytes) {
  const std::lock_guard lock(mutex);
  auto& request = *static_cast<Request*>(in_request);
  Comm& comm = *request.comm;
  *done = 0;
  if (++state.tests >= state.fails_from && state.fails_from > 0) return state.failure;
  move(comm);
  if (!request.complete) return comm.error;
  if (request.late > 0) {
    --request.late;
    return abi::kSuccess;
  }
  *done = 1;
  if (bytes != nullptr)
    *bytes = static_cast<int>(request.bytes) + (comm.sends ? 0 : state.says_more);
  comm.all.erase(&request);
  --state.requests;
  return abi::kSuccess;
}

int close_comm(void* comm) {
  const std::lock_guard lock(mutex);
  const std::unique_ptr<Comm> gone(static_cast<Comm*>(comm));
  if (!gone->all.empty()) ++state.interrupted;
  state.requests -= static_cast<int64_t>(gone->all.size());
  for (const auto& [key, region] : regions)
    if (region->comm == comm) return violate("a connection closed before its memory");
  ::close(gone->fd);
  --state.comms;
  return abi::kSuccess;
}

int send(void* comm, void* data, size_t bytes, void* region, void** request) {
  const std::lock_guard lock(mutex);
  return begin(*static_cast<Comm*>(comm), data, bytes, region, request);
}

int receive(void* comm, int n, void** data, size_t bytes, void** regions_of, void** request) {
  const std::lock_guard lock(mutex);
  if (n != 1) return violate("several receives");
  return begin(*static_cast<Comm*>(comm), *data, bytes, *regions_of, request);
}

#define FAKE_JOIN_(a, b) a##b
#define FAKE_JOIN(a, b) FAKE_JOIN_(a, b)
using Version = abi::FAKE_JOIN(V, FAKE_NET_VERSION);
using Net = abi::Net<Version>;
// NCCL's own tables go on.
struct Exported {
  Net net;
  void* more[3];
};

Exported make_table() {
  Net net{};
  net.name = "hetccltest";
#if FAKE_NET_VERSION >= 11
  net.init = [](void** context, uint64_t, abi::CommConfig* config, abi::Logger log,
                abi::Profiler profiler) {
    *context = &state;
    return config->traffic_class == -1 && profiler != nullptr ? start(log) : abi::kInternalError;
  };
  net.listen = [](void* context, int device, void* handle, void** listener) {
    return context == &state ? listen_at(device, handle, listener) : abi::kInternalError;
  };
  net.connect = [](void* context, int device, void* handle, void** sender, void** offload) {
    return context == &state && *offload == nullptr ? connect_to(device, handle, sender)
                                                    : abi::kInternalError;
  };
#elif FAKE_NET_VERSION == 10
  net.init = [](abi::Logger log, abi::Profiler profiler) {
    return profiler != nullptr ? start(log) : abi::kInternalError;
  };
  net.listen = listen_at;
  net.connect = [](int device, abi::CommConfig* config, void* handle, void** sender, void**) {
    return config->traffic_class == -1 ? connect_to(device, handle, sender) : abi::kInternalError;
  };
#else
  net.init = start;
  net.listen = listen_at;
  net.connect = [](int device, void* handle, void** sender, void**) {
    return connect_to(device, handle, sender);
  };
#endif
#if FAKE_NET_VERSION >= 10
  net.send = [](void* comm, void* data, size_t bytes, int, void* region, void*, void** request) {
    return send(comm, data, bytes, region, request);
  };
  net.receive = [](void* comm, int n, void** data, size_t* bytes, int*, void** regions_of, void**,
                   void** request) { return receive(comm, n, data, *bytes, regions_of, request); };
#else
  net.send = [](void* comm, void* data, Version::Size bytes, int, void* region, void** request) {
    return send(comm, data, static_cast<size_t>(bytes), region, request);
  };
  net.receive = [](void* comm, int n, void** data, Version::Size* bytes, int*, void** regions_of,
                   void** request) {
    return receive(comm, n, data, static_cast<size_t>(*bytes), regions_of, request);
  };
#endif
  net.devices = devices;
  net.get_properties = get_properties<Version::Properties>;
  net.accept = accept_from;
  net.register_memory = register_memory;
  net.register_dma_buf = register_dma_buf;
  net.deregister = deregister;
  net.flush = flush;
  net.test = test;
  net.close_sender = net.close_receiver = net.close_listener = close_comm;
  return {net, {}};
}

}  // namespace

extern "C" {

extern Exported FAKE_JOIN(ncclNetPlugin_v, FAKE_NET_VERSION);
Exported FAKE_JOIN(ncclNetPlugin_v, FAKE_NET_VERSION) = make_table();

NetPlugin* reset_net_plugin() {
  const std::lock_guard lock(mutex);
  state.~NetPlugin();
  new (&state) NetPlugin;
  randomness.seed(state.seed);
  return &state;
}
}
