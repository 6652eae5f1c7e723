// Tests an adaptor's transport (hetccl/adaptor.h), which it loads as hetccl does. Needs only the
// header of hetccl:
//   g++ -std=c++17 -pthread -I.../include transport_conformance.cc -ldl -o transport_conformance
//   transport_conformance ADAPTOR.so [IP ADDRESS OF THIS HOST]
// Opens two transports in one process. Prints its checks and measurements. Exit status: 1 at the
// first broken rule, 2 if it cannot start.
#include <dlfcn.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hetccl/adaptor.h"

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<unsigned char>;
using std::chrono::milliseconds;

constexpr milliseconds kDeadline{60'000};
constexpr size_t kSizes[] = {1, 2, 7, 96, 1000, 4096, 8191, 65'536, 300'001, 1 << 20, 64 << 20};

[[noreturn]] void fail(int status, const std::string& text) {
  std::fprintf(stderr, "transport_conformance: %s\n", text.c_str());
  std::_Exit(status);
}
void need(bool good, const std::string& rule) {
  if (!good) fail(1, "broken rule: " + rule);
}

const hetcclTransportAdaptor* calls = nullptr;

void check(int code, const std::string& what) {
  if (code == 0) return;
  const char* text = calls->error_text(code);
  need(false, what + ": " + (text != nullptr ? text : "error " + std::to_string(code)));
}

struct Transport {
  explicit Transport(const char* host) {
    const hetcclTransportSettings settings = {sizeof settings, &host, 1};
    size_t bytes = 0;
    address.resize(HETCCL_TRANSPORT_ADDRESS_BYTES);
    check(calls->open(&settings, &handle, address.data(), &bytes), "open");
    need(handle != nullptr && bytes > 0 && bytes <= address.size(), "open makes an address");
    address.resize(bytes);
  }
  ~Transport() { calls->destroy(handle); }
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  bool progress() const {
    int moved = 0;
    check(calls->progress(handle, &moved), "progress");
    return moved != 0;
  }
  bool readable(milliseconds wait) const {
    pollfd entry{calls->poll_fd(handle), POLLIN, 0};
    return ::poll(&entry, 1, static_cast<int>(wait.count())) == 1;
  }
  void* handle = nullptr;
  Bytes address;
};

// Ends a connect.
struct Limit {
  Clock::time_point end;
  static int passed(void* limit) { return Clock::now() > static_cast<Limit*>(limit)->end ? 1 : 0; }
};

int connect(const Transport& own, const Transport& peer, int side, uint8_t number,
            milliseconds limit, void** channel) {
  Limit until{Clock::now() + limit};
  hetcclTransportPeer other{};
  other.size = sizeof other;
  other.address = peer.address.data();
  other.address_bytes = peer.address.size();
  other.side = side;
  std::memset(other.id, number, sizeof other.id);
  std::memset(other.key, number, sizeof other.key);
  other.given_up = Limit::passed;
  other.context = &until;
  return calls->connect(own.handle, &other, channel);
}

struct Counts {
  uint64_t sends = 0, receives = 0;
  int code = 0;
};

// A channel between two transports, or between one and itself.
struct Pair {
  Pair(const Transport& first, const Transport& second, uint8_t number)
      : transports{&first, &second} {
    std::thread other(
        [&] { check(connect(second, first, 1, number, kDeadline, &channels[1]), "connect"); });
    check(connect(first, second, 0, number, kDeadline, &channels[0]), "connect");
    other.join();
    need(channels[0] != nullptr && channels[1] != nullptr, "connect makes a channel");
  }
  // Takes ends that have been made.
  Pair(const Transport& first, const Transport& second, const std::array<void*, 2>& made)
      : transports{&first, &second}, channels(made) {}
  ~Pair() {
    close(0);
    close(1);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  void close(size_t end) {
    if (channels[end] != nullptr) calls->close(channels[end]);
    channels[end] = nullptr;
  }
  void send(size_t end, const void* data, size_t bytes) {
    check(calls->send(channels[end], data, bytes), "send");
    ++sent[end];
  }
  void receive(size_t end, void* data, size_t bytes) {
    check(calls->receive(channels[end], data, bytes), "receive");
    ++received[end];
  }
  Counts count(size_t end) {
    Counts counts = last[end];
    counts.code = calls->completed(channels[end], &counts.sends, &counts.receives);
    need(counts.sends >= last[end].sends && counts.receives >= last[end].receives &&
             counts.sends <= sent[end] && counts.receives <= received[end],
         "completed counts up, and no more than was posted");
    last[end] = counts;
    return counts;
  }
  bool step() const {
    return static_cast<int>(transports[0]->progress()) +
               static_cast<int>(transports[1]->progress()) >
           0;
  }
  void until(const std::string& rule, const std::function<bool()>& done) {
    const auto end = Clock::now() + kDeadline;
    while (!done()) {
      step();
      need(Clock::now() < end, rule);
    }
  }
  // Waits until both ends have completed all posts.
  void finish(const std::string& rule) {
    until(rule, [&] {
      bool done = true;
      for (size_t end : {0U, 1U}) {
        const Counts counts = count(end);
        check(counts.code, "completed");
        done = done && counts.sends == sent[end] && counts.receives == received[end];
      }
      return done;
    });
  }
  // Waits until nothing has moved for a while.
  void settle() const {
    const auto end = Clock::now() + kDeadline;
    for (auto quiet = Clock::now(); Clock::now() - quiet < milliseconds(30);) {
      if (step()) quiet = Clock::now();
      need(Clock::now() < end, "an idle transport says that nothing moves");
    }
  }

  std::array<const Transport*, 2> transports;
  std::array<void*, 2> channels{};
  std::array<uint64_t, 2> sent{}, received{};
  std::array<Counts, 2> last{};
};

Bytes pattern(size_t bytes, uint64_t seed) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<unsigned char>(seed * 31 + i * 7 + (i >> 8) * 13 + (i >> 16));
  return data;
}

void check_sizes(const Transport& a, const Transport& b) {
  Pair pair(a, b, 1);
  std::mt19937 random(5);
  std::vector<size_t> sizes(std::begin(kSizes), std::end(kSizes));
  for (int i = 0; i < 200; ++i) sizes.push_back(1 + random() % (1U << (1 + random() % 20)));
  std::vector<Bytes> out[2], in[2];
  for (size_t i = 0; i < sizes.size(); ++i)
    for (size_t end : {0U, 1U}) {
      out[end].push_back(pattern(sizes[i], 2 * i + end));
      in[end].emplace_back(sizes[i]);
    }
  std::array<size_t, 4> next{};
  const auto post = [&](size_t what) {
    const size_t end = what % 2, i = next[what];
    if (i == sizes.size()) return;
    ++next[what];
    what < 2 ? pair.send(end, out[end][i].data(), sizes[i])
             : pair.receive(end, in[end][i].data(), sizes[i]);
  };
  const auto done = [&] {
    return std::all_of(next.begin(), next.end(), [&](size_t n) { return n == sizes.size(); });
  };
  while (!done()) {
    post(random() % 4);
    if (random() % 2 == 0) pair.step();
  }
  pair.finish("messages of all sizes arrive, both ways at once");
  need(in[0] == out[1] && in[1] == out[0], "messages arrive as they were sent, in order");
  std::printf("sizes from 1 byte to 64 MiB, both ways at once\n");
}

void check_many(const Transport& a, const Transport& b) {
  constexpr size_t kMessages = 3000, kEach = 100;
  Pair pair(a, b, 2);
  const Bytes out = pattern(kMessages * kEach, 3);
  Bytes in(out.size());
  for (size_t i = 0; i < kMessages; ++i) pair.send(0, &out[i * kEach], kEach);
  for (int i = 0; i < 1000; ++i) pair.step();
  for (size_t i = 0; i < kMessages; ++i) pair.receive(1, &in[i * kEach], kEach);
  pair.finish("3000 messages that are sent before any is received arrive");
  need(in == out, "many messages arrive in order");
  std::printf("%zu messages outstanding\n", kMessages);
}

void check_bound(const Transport& a, const Transport& b) {
  constexpr size_t kMessages = 64, kEach = 1 << 20;
  Pair pair(a, b, 3);
  const Bytes out = pattern(kEach, 4);
  Bytes in(kEach);
  for (size_t i = 0; i < kMessages; ++i) pair.send(0, out.data(), kEach);
  pair.settle();
  need(pair.count(0).sends < kMessages / 2, "a sender is held back where nothing is received");
  const auto is_readable = [](const Transport* one) { return one->readable(milliseconds(0)); };
  const auto end = Clock::now() + kDeadline;
  while (std::any_of(pair.transports.begin(), pair.transports.end(), is_readable)) {
    need(Clock::now() < end, "the descriptor of an idle transport is not readable");
    pair.settle();  // the machine was busy, and something has moved since
  }
  for (size_t i = 0; i < kMessages; ++i) pair.receive(1, in.data(), kEach);
  pair.finish("what was held back arrives");
  std::printf("a sender is held back\n");
}

// Both sleep on their descriptors whenever nothing moves.
void check_wakes(const Transport& a, const Transport& b) {
  Pair pair(a, b, 4);
  const auto play = [&](size_t end, size_t bytes, int rounds) {
    Bytes out = pattern(bytes, 9), in(bytes);
    for (int round = 0; round < rounds; ++round) {
      for (const bool sends : {end == 0, end != 0}) {
        sends ? pair.send(end, out.data(), bytes) : pair.receive(end, in.data(), bytes);
        const auto limit = Clock::now() + kDeadline;
        for (bool moved = true;;) {
          const Counts counts = pair.count(end);
          check(counts.code, "completed");
          if (counts.sends == pair.sent[end] && counts.receives == pair.received[end]) break;
          if (!moved) need(pair.transports[end]->readable(kDeadline), "no wake-up is lost");
          moved = pair.transports[end]->progress();
          need(Clock::now() < limit, "who sleeps is woken");
        }
      }
    }
  };
  for (const size_t bytes : {size_t{8}, size_t{20'000}, size_t{3} << 20}) {
    std::thread other([&] { play(1, bytes, bytes > 1'000'000 ? 20 : 300); });
    play(0, bytes, bytes > 1'000'000 ? 20 : 300);
    other.join();
  }
  std::printf("who sleeps on the descriptor is woken\n");
}

// Memory that must not be accessed once it is unmapped.
struct Mapped {
  explicit Mapped(size_t its_bytes) : bytes(its_bytes) {
    data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) fail(2, "no memory");
    std::memset(data, 1, bytes);
  }
  ~Mapped() { ::munmap(data, bytes); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  size_t bytes;
  void* data;
};

void check_close(const Transport& a, const Transport& b) {
  uint8_t number = 10;
  for (const size_t bytes : {size_t{96}, size_t{50'000}, size_t{8} << 20}) {
    for (const int steps : {0, 1, 5, 50}) {
      Pair pair(a, b, number++);
      Mapped kept(bytes);  // belongs to the end that stays
      {
        Mapped out(bytes), in(bytes);
        pair.send(0, out.data, bytes);
        pair.receive(0, in.data, bytes);
        pair.receive(0, in.data, bytes);
        pair.receive(1, kept.data, bytes);
        for (int i = 0; i < steps; ++i) pair.step();
        const auto begin = Clock::now();
        pair.close(0);
        need(Clock::now() - begin < kDeadline, "close waits for nobody");
      }
      pair.send(1, kept.data, bytes);
      pair.until("the other end of a closed channel is told",
                 [&] { return pair.count(1).code != 0; });
      pair.close(1);
      pair.settle();
    }
  }
  std::printf("a close with posts outstanding touches nothing any more, and is noticed\n");
}

void check_last_words(const Transport& a, const Transport& b) {
  constexpr size_t kMessages = 20, kEach = 5000;
  Pair pair(a, b, 40), beside(a, b, 41);
  const Bytes out = pattern(kMessages * kEach, 6);
  Bytes in(out.size());
  for (size_t i = 0; i < kMessages; ++i) pair.send(0, &out[i * kEach], kEach);
  pair.until("100 kB are taken from a sender before they are received",
             [&] { return pair.count(0).sends == kMessages; });
  pair.close(0);
  pair.settle();
  for (size_t i = 0; i < kMessages; ++i) pair.receive(1, &in[i * kEach], kEach);
  pair.receive(1, in.data(), kEach);
  pair.until("the other end of a closed channel is told", [&] { return pair.count(1).code != 0; });
  need(pair.count(1).receives == kMessages && in == out, "what was sent before a close arrives");
  beside.send(1, out.data(), kEach);
  beside.receive(0, in.data(), kEach);
  beside.finish("a channel goes on when another is closed");
  std::printf("what was sent before a close arrives\n");
}

// Channels made at the same time, in any order, must join the ends with the same id.
void check_crowd(const Transport& a, const Transport& b) {
  constexpr size_t kChannels = 8, kBytes = 3000;
  std::array<std::array<void*, 2>, kChannels> made{};
  std::vector<std::thread> threads;
  const auto begin = [&](size_t i, int side) {
    threads.emplace_back([&, i, side] {
      check(connect(side == 0 ? a : b, side == 0 ? b : a, side, static_cast<uint8_t>(60 + i),
                    kDeadline, &made[i][static_cast<size_t>(side)]),
            "connect");
    });
    std::this_thread::sleep_for(milliseconds(5));
  };
  for (size_t i = 0; i < kChannels; ++i) begin(i, i % 4 == 3 ? 0 : 1);
  for (size_t i = kChannels; i-- > 0;) begin(i, i % 4 == 3 ? 1 : 0);
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kChannels; ++i) {
    need(made[i][0] != nullptr && made[i][1] != nullptr, "connect makes a channel");
    for (size_t k = 0; k < i; ++k)
      need(made[i][0] != made[k][0] && made[i][1] != made[k][1], "each connect makes its own");
  }
  std::vector<Bytes> out, in(2 * kChannels, Bytes(kBytes));
  std::deque<Pair> pairs;
  for (size_t i = 0; i < 2 * kChannels; ++i) out.push_back(pattern(kBytes, i));
  for (size_t i = 0; i < kChannels; ++i) {
    Pair& pair = pairs.emplace_back(a, b, made[i]);
    for (const size_t end : {0U, 1U}) {
      pair.receive(end, in[2 * i + 1 - end].data(), kBytes);
      pair.send(end, out[2 * i + end].data(), kBytes);
    }
  }
  for (Pair& pair : pairs) pair.finish("channels that are made at the same time carry data");
  need(in == out, "channels that are made at the same time join the ends of one id");
  std::printf("%zu connects at the same time\n", 2 * kChannels);
}

void check_connects(const Transport& a, const Transport& b) {
  for (const int side : {0, 1}) {
    void* channel = nullptr;
    const auto begin = Clock::now();
    need(connect(a, b, side, 50, milliseconds(100), &channel) != 0 && channel == nullptr,
         "a connect without the other end makes nothing");
    need(Clock::now() - begin < kDeadline, "a connect ends when hetccl gives it up");
  }
  Pair self(a, a, 80);
  const Bytes out = pattern(100'000, 8);
  Bytes in(out.size());
  self.send(1, out.data(), out.size());
  self.receive(0, in.data(), in.size());
  self.finish("a transport connects with itself");
  need(in == out, "a transport connects with itself");
  std::printf("connects given up, and with itself\n");
}

void measure(const Transport& a, const Transport& b) {
  Pair pair(a, b, 90);
  const auto seconds = [&](size_t bytes, int rounds, int at_once) {
    const Bytes out = pattern(bytes, 1);
    Bytes in(bytes);
    const auto begin = Clock::now();
    for (int i = 0; i < rounds; ++i) {
      for (int k = 0; k < at_once; ++k) {
        pair.receive(1, in.data(), bytes);
        pair.send(0, out.data(), bytes);
      }
      pair.finish("a message arrives");
      if (at_once > 1) continue;
      pair.receive(0, in.data(), bytes);
      pair.send(1, out.data(), bytes);
      pair.finish("a message arrives");
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  seconds(8, 200, 1);
  const double latency = seconds(8, 2000, 1) / 4000, stream = seconds(1 << 20, 20, 16);
  std::printf(
      "8 bytes take %.1f us, 320 messages of 1 MiB %.2f GB/s; one thread drives both ends\n",
      latency * 1e6, 320.0 * (1 << 20) / stream / 1e9);
}

// Copies to a whole struct, as hetccl does: an adaptor may have been compiled with a shorter one.
template <typename Table>
const Table* as_compiled(const Table* given) {
  if (given == nullptr) return nullptr;
  need(given->size > 0, "a table has its size");
  static Table whole{};
  std::memcpy(&whole, given, std::min(given->size, sizeof whole));
  return &whole;
}

void load(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(2, dlerror());
  const auto entry = reinterpret_cast<hetcclAdaptorEntry>(dlsym(handle, HETCCL_ADAPTOR_ENTRY));
  need(entry != nullptr, "it exports " HETCCL_ADAPTOR_ENTRY);
  const hetcclAdaptorTable* table = as_compiled(entry(HETCCL_ADAPTOR_ABI));
  need(table != nullptr && table->abi == HETCCL_ADAPTOR_ABI, "it serves this ABI");
  calls = as_compiled(table->transport);
  if (calls == nullptr) fail(2, "it has no transport");
  need(calls->error_text && calls->score && calls->open && calls->connect && calls->send &&
           calls->receive && calls->completed && calls->progress && calls->poll_fd &&
           calls->close && calls->destroy,
       "its table is complete");
  need(calls->score(1) == calls->score(1) && calls->score(0) == calls->score(0),
       "score depends on nothing else");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) fail(2, "usage: transport_conformance ADAPTOR.so [IP ADDRESS]");
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  load(argv[1]);
  const char* host = argc == 3 ? argv[2] : "127.0.0.1";
  {
    const Transport a(host), b(host);
    check_crowd(a, b);
    check_sizes(a, b);
    check_many(a, b);
    check_bound(a, b);
    check_wakes(a, b);
    check_close(a, b);
    check_last_words(a, b);
    check_connects(a, b);
    measure(a, b);
  }
  std::printf("%s %s conforms: scores %d and %d, capabilities 0x%x\n", calls->name, calls->version,
              calls->score(1), calls->score(0), calls->capabilities);
  return 0;
}
