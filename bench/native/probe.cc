// Measures what the machine can do, for `make bench` to compare with:
//   probe memory REPEATS BYTES             copies and sums on all cores at once
//   probe tcp REPEATS BYTES STREAMS WAYS   plain sockets: from rank 1 to rank 0, or both ways
// RANK, ADDRESS (rank 0's) and PORT come from the environment of the latter.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>

#include "timing.h"

namespace {

using bench::Buffer;

void require(bool fine, const char* what) {
  if (fine) return;
  std::perror(what);
  std::exit(1);
}

// Each core has buffers of its own; a repeat begins on all at once, and its time is the slowest's.
bench::Times on_all_cores(int repeats, const std::function<void(unsigned)>& run) {
  const unsigned cores = std::thread::hardware_concurrency();
  std::vector<double> seconds;
  std::barrier together(static_cast<std::ptrdiff_t>(cores));
  std::vector<std::thread> threads;
  for (unsigned core = 0; core < cores; ++core) {
    threads.emplace_back([&, core] {
      for (int i = -bench::kWarmUps; i < repeats; ++i) {
        together.arrive_and_wait();
        const double start = bench::now();
        run(core);
        together.arrive_and_wait();
        if (core == 0 && i >= 0) seconds.push_back(bench::now() - start);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return bench::summary(seconds);
}

int memory(int repeats, size_t bytes) {
  const size_t count = bytes / sizeof(float);
  struct Buffers {
    explicit Buffers(size_t n) : a(n, 1), b(n, 2), c(n, 0) {}
    Buffer a, b, c;
  };
  std::vector<Buffers> of_core;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) of_core.emplace_back(count);
  const auto copied = on_all_cores(repeats, [&](unsigned core) {
    std::memcpy(of_core[core].c.data(), of_core[core].a.data(), bytes);
  });
  const auto reduced = on_all_cores(repeats, [&](unsigned core) {
    const float *a = of_core[core].a.data(), *b = of_core[core].b.data();
    float* __restrict c = of_core[core].c.data();
    for (size_t i = 0; i < count; ++i) c[i] = a[i] + b[i];
  });
  bench::Report report;
  report.add("copy", bytes, copied, true);
  report.add("reduce", bytes, reduced, of_core[0].c.holds(3));
  return report.finish(0);
}

sockaddr_in address() {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(std::getenv("PORT"))));
  inet_pton(AF_INET, std::getenv("ADDRESS"), &to.sin_addr);
  return to;
}

std::vector<int> connected(bool listens, size_t streams) {
  const sockaddr_in to = address();
  const auto* where = reinterpret_cast<const sockaddr*>(&to);
  const int on = 1, listener = listens ? socket(AF_INET, SOCK_STREAM, 0) : -1;
  if (listens) {
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    require(bind(listener, where, sizeof to) == 0 && listen(listener, 64) == 0, "listen");
  }
  std::vector<int> sockets;
  while (sockets.size() < streams) {
    const int fd = listens ? accept(listener, nullptr, nullptr) : socket(AF_INET, SOCK_STREAM, 0);
    if (!listens && connect(fd, where, sizeof to) != 0) {  // not there yet
      close(fd);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockets.push_back(fd);
  }
  if (listens) close(listener);
  return sockets;
}

void send_all(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
    require(n > 0, "send");
    data += n;
    bytes -= static_cast<size_t>(n);
  }
}

void receive_all(int fd, char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = recv(fd, data, bytes, 0);
    require(n > 0, "recv");
    data += n;
    bytes -= static_cast<size_t>(n);
  }
}

// A thread for each direction of each stream.
void transfer(const std::vector<int>& sockets, char* out, char* in, size_t bytes) {
  const size_t share = bytes / sockets.size();
  std::vector<std::thread> threads;
  for (size_t s = 0; s < sockets.size(); ++s) {
    if (out != nullptr) threads.emplace_back(send_all, sockets[s], out + s * share, share);
    if (in != nullptr) threads.emplace_back(receive_all, sockets[s], in + s * share, share);
  }
  for (auto& thread : threads) thread.join();
}

int tcp(int repeats, size_t bytes, size_t streams, bool both_ways) {
  const bool listens = std::getenv("RANK") == std::string_view("0");
  const std::vector<int> sockets = connected(listens, streams);
  Buffer out(bytes / sizeof(float), 1), in(bytes / sizeof(float));
  auto *from = reinterpret_cast<char*>(out.data()), *to = reinterpret_cast<char*>(in.data());
  std::vector<double> seconds;
  for (int i = -bench::kWarmUps; i < repeats; ++i) {
    char mark = 0;
    if (!listens) send_all(sockets[0], &mark, 1);
    receive_all(sockets[0], &mark, 1);
    if (listens) send_all(sockets[0], &mark, 1);
    const double start = bench::now();
    transfer(sockets, both_ways || !listens ? from : nullptr, both_ways || listens ? to : nullptr,
             bytes);
    if (i >= 0) seconds.push_back(bench::now() - start);
  }
  bench::Report report;
  report.add("tcp", both_ways ? 2 * bytes : bytes, bench::summary(seconds),
             !(both_ways || listens) || in.holds(1));
  return report.finish(listens ? 0 : 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int repeats = std::atoi(argv[2]);
  const size_t bytes = std::strtoull(argv[3], nullptr, 10);
  if (argc == 4) return memory(repeats, bytes);
  return tcp(repeats, bytes, std::strtoull(argv[4], nullptr, 10), std::atoi(argv[5]) == 2);
}
