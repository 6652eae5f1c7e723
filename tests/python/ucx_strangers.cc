// Strangers at the sockets of the adaptor by UCX: ucx_strangers ADAPTOR.so. One repeats what an end
// of a channel has said, as one who reads the network can; a crowd takes all descriptors.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "hetccl/adaptor.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const hetcclTransportAdaptor* calls = nullptr;

void need(bool good, const char* rule) {
  if (good) return;
  std::fprintf(stderr, "ucx_strangers: broken rule: %s\n", rule);
  std::_Exit(1);
}

// An address that an end listens on, as the adaptor writes it (ucx.h).
struct Where {
  uint8_t family = 4, unused = 0;
  uint16_t port = 0;
  uint8_t ip[16] = {127, 0, 0, 1};
};

struct Transport {
  Transport() {
    const char* host = "127.0.0.1";
    const hetcclTransportSettings settings = {sizeof settings, &host, 1};
    size_t bytes = 0;
    uint8_t address[HETCCL_TRANSPORT_ADDRESS_BYTES];
    need(calls->open(&settings, &handle, address, &bytes) == 0 && bytes == sizeof where, "open");
    std::memcpy(&where, address, sizeof where);
  }
  void* handle = nullptr;
  Where where;
};

struct Limit {
  Clock::time_point end;
  static int passed(void* limit) { return Clock::now() > static_cast<Limit*>(limit)->end ? 1 : 0; }
};

// An end of a channel to who listens at `peer`; null if the other end does not come in time.
void* connect(const Transport& own, const Where& peer, int side, uint8_t key, milliseconds time) {
  Limit limit{Clock::now() + time};
  hetcclTransportPeer other{};
  other.size = sizeof other;
  other.address = &peer;
  other.address_bytes = sizeof peer;
  other.side = side;
  std::memset(other.id, 7, sizeof other.id);
  std::memset(other.key, key, sizeof other.key);
  other.given_up = Limit::passed;
  other.context = &limit;
  void* channel = nullptr;
  return calls->connect(own.handle, &other, &channel) == 0 ? channel : nullptr;
}

int new_socket() {
  return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

sockaddr_in at(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int dial(uint16_t port) {
  const int fd = new_socket();
  const sockaddr_in address = at(port);
  need(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "dial");
  return fd;
}

// Records the first words of an end of the channel.
std::vector<char> record_hello(const Transport& own) {
  Where trap;
  const int listener = new_socket();
  sockaddr_in address = at(0);
  socklen_t length = sizeof address;
  need(::bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  need(::listen(listener, 4) == 0, "listen");
  need(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0, "name");
  trap.port = address.sin_port;
  std::vector<char> hello(1 << 16);
  std::thread end([&] { need(connect(own, trap, 0, 1, milliseconds(500)) == nullptr, "trap"); });
  const int fd = ::accept(listener, nullptr, nullptr);
  size_t bytes = 0;
  while (true) {  // until the end gives up
    const ssize_t n = ::recv(fd, hello.data() + bytes, hello.size() - bytes, 0);
    if (n <= 0) break;
    bytes += static_cast<size_t>(n);
  }
  end.join();
  ::close(fd);
  ::close(listener);
  hello.resize(bytes);
  return hello;
}

void check_replay(const Transport& a, const Transport& b) {
  const std::vector<char> hello = record_hello(a);
  const int stranger = dial(b.where.port);
  need(::send(stranger, hello.data(), hello.size(), 0) == static_cast<ssize_t>(hello.size()),
       "say");
  std::thread liar([&] {
    char heard[1 << 12];
    ::recv(stranger, heard, sizeof heard, 0);
    const char proof[32] = {};
    ::send(stranger, proof, sizeof proof, MSG_NOSIGNAL);
  });
  need(connect(b, a.where, 1, 1, milliseconds(500)) == nullptr,
       "who repeats what an end has said is no end");
  ::shutdown(stranger, SHUT_RDWR);
  liar.join();
  ::close(stranger);
}

void check_keys(const Transport& a, const Transport& b) {
  std::thread other(
      [&] { need(connect(b, a.where, 1, 2, milliseconds(500)) == nullptr, "ends have one key"); });
  need(connect(a, b.where, 0, 1, milliseconds(500)) == nullptr, "ends have one key");
  other.join();
}

// Without descriptors the transport leaves the crowd alone, and sleeps.
void check_crowd(const Transport& b) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int first = dial(b.where.port);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(first) + 1;
  need(::setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
  bool sleeps = false;
  for (int i = 0; i < 20 && !sleeps; ++i) {
    int moved = 0;
    need(calls->progress(b.handle, &moved) == 0, "progress");
    std::this_thread::sleep_for(milliseconds(2));
    pollfd entry{calls->poll_fd(b.handle), POLLIN, 0};
    sleeps = moved == 0 && ::poll(&entry, 1, 0) == 0;
  }
  need(sleeps, "a transport without descriptors sleeps");
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::close(first);
}

void check_connect(const Transport& a, const Transport& b) {
  void* ends[2] = {};
  std::thread other([&] { ends[1] = connect(b, a.where, 1, 3, milliseconds(60'000)); });
  ends[0] = connect(a, b.where, 0, 3, milliseconds(60'000));
  other.join();
  need(ends[0] != nullptr && ends[1] != nullptr, "ends of one key meet");
  for (void* end : ends) calls->close(end);
}

}  // namespace

int main(int, char** argv) {
  void* library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 2;
  using Entry = const hetcclAdaptorTable* (*)(uint32_t);
  auto* entry = reinterpret_cast<Entry>(::dlsym(library, "hetcclAdaptor"));
  calls = entry(HETCCL_ADAPTOR_ABI)->transport;
  const Transport a, b;
  check_replay(a, b);
  check_keys(a, b);
  check_crowd(b);
  check_connect(a, b);
  calls->destroy(a.handle);
  calls->destroy(b.handle);
  std::printf("strangers stay outside\n");
  return 0;
}
