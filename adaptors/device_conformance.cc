// Tests an adaptor's device (hetccl/adaptor.h). Needs nothing of hetccl but the header:
//   g++ -std=c++17 -I.../include device_conformance.cc -ldl -lpthread -o device_conformance
//   device_conformance ADAPTOR.so [SECONDS, 20: what takes longer is stuck]
// Says what it has checked; ends with status 1 at the first rule that is broken, 2 where it cannot
// begin. `hetccl selftest --devices NAME:0,NAME:1,host` is the test of collectives.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hetccl/adaptor.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAtOnce = std::chrono::seconds(2);  // an enqueueing call that takes longer waits

[[noreturn]] void fail(int status, const std::string& text) {
  std::fprintf(stderr, "device_conformance: %s\n", text.c_str());
  std::_Exit(status);
}
void need(bool good, const std::string& rule) {
  if (!good) fail(1, "BROKEN: " + rule);
}

const hetcclDeviceAdaptor* device = nullptr;
std::chrono::seconds deadline{20};

void done(int code, const char* call) {
  if (code != 0) fail(1, std::string("BROKEN: ") + call + ": " + device->error_text(code));
}
#define CALL(name, ...) done(device->name(__VA_ARGS__), #name)

void enqueued(const std::function<void()>& calls, const char* what) {
  const auto start = Clock::now();
  calls();
  need(Clock::now() - start < kAtOnce, std::string(what) + " returns at once");
}

// A word in pinned memory, and what the host sees of it.
struct Word {
  uint32_t* at = nullptr;
  Word() {
    void* memory = nullptr;
    CALL(allocate_pinned, &memory, 64);
    at = static_cast<uint32_t*>(memory);
    set(0);
  }
  void set(uint32_t value) const { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
  [[nodiscard]] uint32_t get() const { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
  [[nodiscard]] bool becomes(uint32_t value) const {
    const auto end = Clock::now() + deadline;
    while (get() != value && Clock::now() < end) std::this_thread::yield();
    return get() == value;
  }
  void free() const { CALL(free_pinned, at); }
};

// Waits for all of a stream.
void drain(void* stream, const char* what) {
  const Word end;
  CALL(write_word, stream, end.at, 1);
  need(end.becomes(1), std::string(what) + ": the stream ends in time");
  end.free();
}

void* pinned(size_t bytes) {
  void* memory = nullptr;
  CALL(allocate_pinned, &memory, bytes);
  return memory;
}
void* allocated(size_t bytes) {
  void* memory = nullptr;
  CALL(allocate, &memory, bytes);
  return memory;
}
void* made_stream() {
  void* stream = nullptr;
  CALL(create_stream, &stream);
  return stream;
}

void check_copies(void* stream) {
  for (const size_t bytes : {size_t{1}, size_t{257}, size_t{65536}, (size_t{4} << 20) + 3}) {
    auto* from = static_cast<unsigned char*>(pinned(bytes + 5));
    auto* back = static_cast<unsigned char*>(pinned(bytes + 5));
    auto* a = static_cast<unsigned char*>(allocated(bytes + 5));
    auto* b = static_cast<unsigned char*>(allocated(bytes + 5));
    for (size_t i = 0; i < bytes; ++i) from[i + 3] = static_cast<unsigned char>(i * 7 + i / 251);
    CALL(copy, stream, a + 1, from + 3, bytes);
    CALL(copy, stream, b + 2, a + 1, bytes);
    CALL(copy, stream, back + 5, b + 2, bytes);
    drain(stream, "copies");
    need(std::memcmp(back + 5, from + 3, bytes) == 0,
         "copies of one stream run in order, of any length, at any address");
    CALL(free_pinned, from);
    CALL(free_pinned, back);
    CALL(free, a);
    CALL(free, b);
  }
}

// A stream that waits holds up what is behind it, and no other stream.
// Nothing is allocated or freed meanwhile, which may wait for the device.
void check_waits(void* a, void* b) {
  const Word gate, passed, other, beside;
  void* const free_stream = made_stream();
  void* event = nullptr;
  CALL(create_event, &event);
  CALL(wait, b, event);  // never recorded
  drain(b, "a wait for an event that was never recorded");
  enqueued(
      [&] {
        CALL(wait_word, a, gate.at, 5);
        CALL(record, event, a);
        CALL(write_word, a, passed.at, 1);
        CALL(wait, b, event);
        CALL(write_word, b, other.at, 1);
      },
      "enqueueing behind a wait");
  CALL(write_word, free_stream, beside.at, 1);
  need(beside.becomes(1), "a stream that waits holds up no other");
  gate.set(4);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  need(passed.get() == 0, "a stream waits until its word has come up to the value");
  need(other.get() == 0, "a stream waits for an event that is not complete");
  gate.set(6);
  need(passed.becomes(1), "a stream goes on when the host writes its word later");
  need(other.becomes(1), "a stream goes on when its event is complete");
  // Words go round: 2 is 4 after 0xfffffffe.
  gate.set(0xfffffffdU);
  CALL(wait_word, a, gate.at, 0xfffffffeU);
  CALL(write_word, a, passed.at, 2);
  gate.set(2);
  need(passed.becomes(2), "(int32_t)(*word - value) >= 0 ends a wait");
  // An event that is recorded anew stands for the last record.
  CALL(record, event, a);
  CALL(wait_word, a, gate.at, 10);
  CALL(record, event, a);
  CALL(wait, b, event);
  CALL(write_word, b, other.at, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  need(other.get() == 1, "a wait is for the last record of an event");
  CALL(destroy_event, event);  // what waits for it still does
  gate.set(10);
  need(other.becomes(2), "an event may be destroyed while streams wait for it");
  drain(a, "waits");
  CALL(destroy_stream, free_stream);
  beside.free();
  gate.free();
  passed.free();
  other.free();
}

// The host sees what was copied before a word was written, and streams what the host wrote.
void check_order(void* stream) {
  constexpr size_t kBytes = size_t{1} << 20;
  const Word there, back;
  auto* from = static_cast<uint32_t*>(pinned(kBytes));
  auto* to = static_cast<uint32_t*>(pinned(kBytes));
  void* memory = allocated(kBytes);
  for (uint32_t turn = 1; turn <= 50; ++turn) {
    CALL(wait_word, stream, there.at, turn);
    CALL(copy, stream, memory, from, kBytes);
    CALL(copy, stream, to, memory, kBytes);
    CALL(write_word, stream, back.at, turn);
    for (size_t i = 0; i < kBytes / 4; ++i) from[i] = turn;
    there.set(turn);
    need(back.becomes(turn), "a stream goes on");
    need(to[0] == turn && to[kBytes / 8] == turn && to[kBytes / 4 - 1] == turn,
         "words order copies against the host");
  }
  CALL(free_pinned, from);
  CALL(free_pinned, to);
  CALL(free, memory);
  there.free();
  back.free();
}

void check_host_calls(void* stream) {
  const Word gate;
  static std::atomic<int> calls;
  calls = 0;
  const auto count = [](void* by) { calls += *static_cast<int*>(by); };
  int one = 1, ten = 10;
  enqueued(
      [&] {
        CALL(wait_word, stream, gate.at, 1);
        CALL(call_host, stream, count, &one);
        CALL(call_host, stream, count, &ten);
      },
      "call_host");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  need(calls == 0, "a stream calls the host when it comes there");
  gate.set(1);
  drain(stream, "calls of the host");
  need(calls == 11, "a stream goes on once the host's function has returned");
  gate.free();
}

void check_pin(void* stream) {
  constexpr size_t kBytes = size_t{64} << 10;
  void* shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail(2, "mmap has failed");
  std::memset(shared, 9, kBytes);
  CALL(pin, shared, kBytes);
  void* memory = allocated(kBytes);
  CALL(copy, stream, memory, shared, kBytes / 2);
  CALL(copy, stream, static_cast<char*>(shared) + kBytes / 2, memory, kBytes / 2);
  CALL(wait_word, stream, static_cast<uint32_t*>(shared), 1);  // 0x09090909
  drain(stream, "pinned pages");
  need(static_cast<char*>(shared)[kBytes - 1] == 9, "streams reach pages that are pinned");
  CALL(unpin, shared);
  CALL(free, memory);
  munmap(shared, kBytes);
}

void check_threads(int index) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([index] {
      int current = 0;
      CALL(current, &current);
      need(current == -1 || current == 0, "a thread has no device at first, or device 0");
      CALL(use, index);
      CALL(current, &current);
      need(current == index, "`use` makes a device the thread's");
      void* stream = made_stream();
      for (int i = 0; i < 20; ++i) {
        void* memory = allocated(4096);
        CALL(copy, stream, memory, static_cast<char*>(memory) + 2048, 2048);
        drain(stream, "threads beside each other");
        CALL(free, memory);
      }
      CALL(destroy_stream, stream);
    });
  }
  for (auto& thread : threads) thread.join();
}

// Of float32 and uint32, whose values are whole: their sums are exact in any order.
template <typename T>
void check_reductions(void* stream, hetcclDataType_t type, const char* name, int* checked) {
  constexpr size_t kCount = 1003;
  for (const auto op : {hetcclSum, hetcclProd, hetcclMax, hetcclMin, hetcclAvg}) {
    if (device->reduces(type, op) != 1) continue;
    for (const size_t n : {size_t{1}, size_t{2}, size_t{3}, size_t{16}}) {
      std::vector<T*> sources;
      std::vector<const void*> addresses;
      for (size_t s = 0; s < n; ++s) {
        sources.push_back(static_cast<T*>(pinned(kCount * sizeof(T))));
        for (size_t i = 0; i < kCount; ++i) sources[s][i] = static_cast<T>(1 + (i + s) % 2);
        addresses.push_back(sources[s]);
      }
      void* memory = allocated(kCount * sizeof(T));
      CALL(copy, stream, memory, sources[0], kCount * sizeof(T));
      addresses[0] = memory;
      hetcclDeviceReduction work{};
      work.size = sizeof work;
      work.result = memory;  // in place
      work.sources = addresses.data();
      work.n_sources = n;
      work.count = kCount;
      work.type = type;
      work.op = op;
      work.divisor = op == hetcclAvg ? 2 : 1;
      CALL(reduce, stream, &work);
      addresses.assign(n, nullptr);  // the list is read before the call returns
      auto* result = static_cast<T*>(pinned(kCount * sizeof(T)));
      CALL(copy, stream, result, memory, kCount * sizeof(T));
      drain(stream, "reductions");
      for (size_t i = 0; i < kCount; ++i) {
        T expected = sources[0][i];
        for (size_t s = 1; s < n; ++s) {
          const T value = sources[s][i];
          if (op == hetcclProd) expected = static_cast<T>(expected * value);
          if (op == hetcclMax) expected = expected > value ? expected : value;
          if (op == hetcclMin) expected = expected < value ? expected : value;
          if (op == hetcclSum || op == hetcclAvg) expected = static_cast<T>(expected + value);
        }
        if (op == hetcclAvg) expected = static_cast<T>(expected / 2);
        need(result[i] == expected, std::string("reduce gives what it should: ") + name);
      }
      for (T* one : sources) CALL(free_pinned, one);
      CALL(free_pinned, result);
      CALL(free, memory);
    }
    ++*checked;
  }
}

void check_device(int index) {
  hetcclDeviceDescription description{};
  CALL(describe, index, &description);
  need(description.model[0] != 0 &&
           strnlen(description.model, sizeof description.model) < sizeof description.model,
       "a device has a model, which ends with a 0");
  need(description.architecture[0] != 0, "a device has an architecture");
  CALL(use, index);
  void *a = made_stream(), *b = made_stream();
  check_copies(a);
  check_copies(nullptr);  // the default stream
  check_waits(a, b);
  check_waits(nullptr, b);
  check_order(a);
  check_host_calls(a);
  check_pin(a);
  check_threads(index);
  int reductions = 0;
  if (device->reduce != nullptr) {
    check_reductions<float>(a, hetcclFloat32, "float32", &reductions);
    check_reductions<uint32_t>(a, hetcclUint32, "uint32", &reductions);
  }
  CALL(destroy_stream, a);
  CALL(destroy_stream, b);
  std::printf("%s:%d conforms: %s, %s%s%s, %d reductions checked\n", device->name, index,
              description.model, description.architecture, description.bus_id[0] != 0 ? " at " : "",
              description.bus_id, reductions);
}

// The whole struct, as hetccl makes it: an adaptor may have been compiled with a shorter one.
template <typename Table>
const Table* as_compiled(const Table* given) {
  if (given == nullptr) return nullptr;
  need(given->size > 0, "a table has its size");
  static Table whole{};
  std::memcpy(&whole, given, std::min(given->size, sizeof whole));
  return &whole;
}

const hetcclDeviceAdaptor* load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(2, dlerror());
  const auto entry = reinterpret_cast<hetcclAdaptorEntry>(dlsym(library, HETCCL_ADAPTOR_ENTRY));
  if (entry == nullptr) fail(2, "it exports no " HETCCL_ADAPTOR_ENTRY);
  const hetcclAdaptorTable* table = as_compiled(entry(HETCCL_ADAPTOR_ABI));
  if (table == nullptr) fail(2, "it does not serve this ABI");
  if (table->device == nullptr) fail(2, "it has no device");
  need(table->abi == HETCCL_ADAPTOR_ABI, "the table has the ABI that it was compiled for");
  return as_compiled(table->device);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) fail(2, "usage: device_conformance ADAPTOR.so [SECONDS]");
  if (argc == 3) deadline = std::chrono::seconds(std::max(std::atoi(argv[2]), 1));
  device = load(argv[1]);
  int devices = 0;
  CALL(count, &devices);
  if (devices < 1) fail(2, "it finds no device");
  for (int i = 0; i < devices; ++i) check_device(i);
  return 0;
}
