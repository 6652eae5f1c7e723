#include "fake/transport_adaptor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fake/patience.h"

namespace hetccl::fake {
namespace {

constexpr int kGivenUp = 3, kTransportBroken = 7, kGone = 9, kWrong = 11;
constexpr size_t kPipeBytes = 512 << 10, kHeader = 96;

struct Transport {
  std::string address;
  int fd = -1;
  void ring() const {
    const uint64_t one = 1;
    if (::write(fd, &one, sizeof one) < 0) std::abort();
  }
};

struct Post {
  char* data;
  size_t bytes, done = 0;
};

struct Pipe {
  std::deque<char> bytes;
  bool closed = false;  // by the end that writes
};

struct Channel {
  Transport* transport;
  std::shared_ptr<Pipe> out, in;
  Channel* other = nullptr;  // null once closed
  std::deque<Post> sends{}, receives{};
  uint64_t sent = 0, received = 0;
};

// A thread that waits in connect, by the id that both ends share.
struct Waiting {
  Transport* transport;
  int side;
  Channel* made = nullptr;
};

std::mutex faults_mutex;
TransportFaults current_faults;
TransportFaults transport_faults() {
  const std::lock_guard lock(faults_mutex);
  return current_faults;
}

std::mutex mutex;  // of all that follows
std::list<Channel*> all_channels;
std::multimap<std::string, Waiting*> waiting;
std::map<std::string, Transport*> listening;
std::atomic<int> transports_open{0}, channels_open{0};

const char* transport_error_text(int code) {
  switch (code) {
    case kGivenUp:
      return "hetccl has given up";
    case kGone:
      return "the other end is gone";
    case kWrong:
      return "no address of this adaptor";
    default:
      return "broken";
  }
}

int score(int same_host) {
  return same_host != 0 ? 150 : 50;
}

int open(const hetcclTransportSettings*, void** transport, void* address, size_t* bytes) {
  static int numbers = 0;
  const std::lock_guard lock(mutex);
  if (transport_faults().opens_nothing) return 0;
  auto* made =
      new Transport{"fake " + std::to_string(++numbers), ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  listening[made->address] = made;
  std::memcpy(address, made->address.data(), made->address.size());
  const size_t told = transport_faults().address_bytes;
  *bytes = told != 0 ? told : made->address.size();
  *transport = made;
  ++transports_open;
  return 0;
}

void join(Waiting& a, Waiting& b) {
  const auto one_way = std::make_shared<Pipe>(), other_way = std::make_shared<Pipe>();
  a.made = new Channel{a.transport, one_way, other_way};
  b.made = new Channel{b.transport, other_way, one_way};
  a.made->other = b.made;
  b.made->other = a.made;
  all_channels.insert(all_channels.end(), {a.made, b.made});
  channels_open += 2;
}

int connect(void* transport, const hetcclTransportPeer* peer, void** channel) {
  const TransportFaults faults = transport_faults();
  if (faults.throws) throw std::runtime_error("connect");
  if (faults.connects_nothing) return 0;
  if (faults.hangs) {
    const auto end = std::chrono::steady_clock::now() + kHang;
    while (transport_faults().hangs && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return kTransportBroken;
  }
  Waiting self{static_cast<Transport*>(transport), peer->side};
  const std::string id(reinterpret_cast<const char*>(peer->id), sizeof peer->id);
  const std::string key = faults.takes_anybody ? "anybody" : id;
  std::unique_lock lock(mutex);
  const std::string address(static_cast<const char*>(peer->address), peer->address_bytes);
  if (address.substr(0, 5) != "fake ") return kWrong;
  const auto [first, last] = waiting.equal_range(key);
  const auto other =
      std::find_if(first, last, [&](const auto& entry) { return entry.second->side != self.side; });
  if (other != last) {
    join(self, *other->second);
    waiting.erase(other);
  } else {
    const auto place = waiting.emplace(key, &self);
    while (self.made == nullptr) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      const bool given_up = peer->given_up(peer->context) != 0;
      lock.lock();
      if (given_up && self.made == nullptr) {
        waiting.erase(place);
        return kGivenUp;
      }
    }
  }
  *channel = self.made;
  return 0;
}

int send(void* channel, const void* data, size_t bytes) {
  const std::lock_guard lock(mutex);
  auto& own = *static_cast<Channel*>(channel);
  own.sends.push_back({static_cast<char*>(const_cast<void*>(data)), bytes});
  own.transport->ring();
  return 0;
}

int receive(void* channel, void* data, size_t bytes) {
  const std::lock_guard lock(mutex);
  auto& own = *static_cast<Channel*>(channel);
  own.receives.push_back({static_cast<char*>(data), bytes});
  own.transport->ring();
  return 0;
}

bool write_some(Channel& own) {
  bool moved = false;
  while (!own.sends.empty()) {
    Post& post = own.sends.front();
    const size_t n = std::min(post.bytes - post.done, kPipeBytes - own.out->bytes.size());
    own.out->bytes.insert(own.out->bytes.end(), post.data + post.done, post.data + post.done + n);
    if (n > 0 && post.bytes == kHeader && transport_faults().spoils) own.out->bytes.back() ^= 0x7f;
    moved |= n > 0;
    post.done += n;
    if (post.done < post.bytes) break;
    own.sends.pop_front();
    ++own.sent;
  }
  return moved;
}

bool read_some(Channel& own) {
  bool moved = false;
  auto& bytes = own.in->bytes;
  while (!own.receives.empty() && !bytes.empty()) {
    Post& post = own.receives.front();
    const auto n = static_cast<std::ptrdiff_t>(std::min(post.bytes - post.done, bytes.size()));
    std::copy(bytes.begin(), bytes.begin() + n, post.data + post.done);
    bytes.erase(bytes.begin(), bytes.begin() + n);
    moved = true;
    post.done += static_cast<size_t>(n);
    if (post.done < post.bytes) break;
    own.receives.pop_front();
    ++own.received;
  }
  return moved;
}

int completed(void* channel, uint64_t* sends, uint64_t* receives) {
  const std::lock_guard lock(mutex);
  const auto& own = *static_cast<Channel*>(channel);
  *sends = own.sent;
  *receives = own.received + (transport_faults().overcounts ? 1'000'000U : 0U);
  return own.in->closed && own.in->bytes.empty() ? kGone : 0;
}

int progress(void* transport, int* moved) {
  const std::lock_guard lock(mutex);
  const auto& own = *static_cast<Transport*>(transport);
  if (transport_faults().fails) return kTransportBroken;
  uint64_t rings = 0;
  const bool rung = ::read(own.fd, &rings, sizeof rings) > 0;
  for (Channel* channel : all_channels) {
    if (channel->transport != &own) continue;
    const bool read = read_some(*channel), wrote = write_some(*channel);
    if ((read || wrote) && channel->other != nullptr) channel->other->transport->ring();
    *moved |= read || wrote ? 1 : 0;
  }
  *moved |= rung ? 1 : 0;
  return 0;
}

int poll_fd(void* transport) {
  return transport_faults().no_descriptor ? 123'456 : static_cast<Transport*>(transport)->fd;
}

void close(void* channel) {
  const std::lock_guard lock(mutex);
  auto* own = static_cast<Channel*>(channel);
  own->out->closed = true;
  if (own->other != nullptr) {
    own->other->other = nullptr;
    own->other->transport->ring();
  }
  all_channels.remove(own);
  --channels_open;
  delete own;
}

void destroy_transport(void* transport) {
  const std::lock_guard lock(mutex);
  auto* own = static_cast<Transport*>(transport);
  listening.erase(own->address);
  ::close(own->fd);
  --transports_open;
  delete own;
}

}  // namespace

void set_transport_faults(const TransportFaults& faults) {
  const std::lock_guard lock(faults_mutex);
  current_faults = faults;
}

const hetcclAdaptorTable& transport_adaptor() {
  static const hetcclTransportAdaptor made = {sizeof made,
                                              "fake",
                                              "1",
                                              HETCCL_TRANSPORT_JOINS_HOSTS,
                                              transport_error_text,
                                              score,
                                              open,
                                              connect,
                                              send,
                                              receive,
                                              completed,
                                              progress,
                                              poll_fd,
                                              close,
                                              destroy_transport};
  static const hetcclAdaptorTable table = [] {
    hetcclAdaptorTable whole{};
    whole.size = sizeof whole;
    whole.abi = HETCCL_ADAPTOR_ABI;
    whole.transport = &made;
    return whole;
  }();
  return table;
}

int open_transports() {
  return transports_open;
}

int open_channels() {
  return channels_open;
}

}  // namespace hetccl::fake
