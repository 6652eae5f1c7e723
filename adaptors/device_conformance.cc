// Tests an adaptor's device (hetccl/adaptor.h). Needs only the header of hetccl:
//   g++ -std=c++17 -I.../include device_conformance.cc -ldl -lpthread -o device_conformance
//   device_conformance ADAPTOR.so [SECONDS after which a call counts as stuck, 20]
// Prints the checks that it has made. Exit status: 1 at the first broken rule, 2 if it cannot
// start. `hetccl selftest --devices NAME:0,NAME:1,host` tests collectives.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "hetccl/adaptor.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSettled = std::chrono::milliseconds(300);  // time for streams that may move

[[noreturn]] void fail(int status, const std::string& text) {
  std::fprintf(stderr, "device_conformance: %s\n", text.c_str());
  std::_Exit(status);
}
void need(bool good, const std::string& rule) {
  if (!good) fail(1, "broken rule: " + rule);
}

const hetcclDeviceAdaptor* device = nullptr;
std::chrono::seconds deadline{60};

// The call that each thread is in. `watch` ends the program if one does not return.
constexpr size_t kThreads = 4;
struct Watched {
  std::atomic<const char*> call{nullptr};
  std::atomic<Clock::time_point> since{};
};
std::array<Watched, 1 + kThreads> watched;
thread_local size_t own_watched = 0;

void begin(const char* call) {
  watched[own_watched].since = Clock::now();
  watched[own_watched].call = call;
}
void watch() {
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    for (const Watched& one : watched) {
      const char* call = one.call;
      if (call == nullptr || Clock::now() - one.since.load() < deadline) continue;
      fail(1, std::string("broken rule: enqueueing calls return at once: ") + call +
                  " takes more than " + std::to_string(deadline.count()) + " s");
    }
  }
}

void done(int code, const char* call) {
  watched[own_watched].call = nullptr;
  if (code == 0) return;
  const char* text = device->error_text(code);
  need(false,
       std::string(call) + ": " + (text != nullptr ? text : "error " + std::to_string(code)));
}
#define CALL(name, ...) done((begin(#name), device->name(__VA_ARGS__)), #name)

void enqueued(const std::function<void()>& calls, const char* what) {
  const auto start = Clock::now();
  calls();
  need(Clock::now() - start < deadline, std::string(what) + " returns at once");
}

void* pinned(size_t bytes) {
  void* memory = nullptr;
  CALL(allocate_pinned, &memory, bytes);
  need(memory != nullptr, "allocate_pinned gives memory, or an error");
  return memory;
}
void* allocated(size_t bytes) {
  void* memory = nullptr;
  CALL(allocate, &memory, bytes);
  need(memory != nullptr, "allocate gives memory, or an error");
  return memory;
}
void* made_stream() {
  void* stream = nullptr;
  CALL(create_stream, &stream);
  need(stream != nullptr, "create_stream makes a stream other than NULL, the default stream");
  return stream;
}

// A word in pinned memory, and the host's view of it.
struct Word {
  uint32_t* at = static_cast<uint32_t*>(pinned(64));
  Word() { set(0); }
  ~Word() { CALL(free_pinned, at); }
  Word(const Word&) = delete;
  Word& operator=(const Word&) = delete;
  void set(uint32_t value) const { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
  [[nodiscard]] uint32_t get() const { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
  [[nodiscard]] bool becomes(uint32_t value) const {
    const auto end = Clock::now() + deadline;
    while (get() != value && Clock::now() < end) std::this_thread::yield();
    return get() == value;
  }
};

// Waits for all work on a stream.
void drain(void* stream, const char* what) {
  const Word end;
  CALL(write_word, stream, end.at, 1);
  need(end.becomes(1), std::string(what) + ": the stream ends in time");
}

void check_copies(void* stream, size_t most) {
  for (const size_t bytes : {size_t{1}, size_t{257}, size_t{65536}, most}) {
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

// A waiting stream delays the work behind it and no other stream. Nothing is allocated or freed
// meanwhile, since that may wait for the device.
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
  std::this_thread::sleep_for(kSettled);
  need(passed.get() == 0, "a stream waits until its word has come up to the value");
  need(other.get() == 0, "a stream waits for an event that is not complete");
  gate.set(6);
  need(passed.becomes(1), "a stream goes on when the host writes its word later");
  need(other.becomes(1), "a stream goes on when its event is complete");
  // Words wrap around: 2 is 4 after 0xfffffffe.
  gate.set(0xfffffffdU);
  CALL(wait_word, a, gate.at, 0xfffffffeU);
  CALL(write_word, a, passed.at, 2);
  gate.set(2);
  need(passed.becomes(2), "(int32_t)(*word - value) >= 0 ends a wait");
  // A repeated record replaces the earlier one.
  CALL(record, event, a);
  CALL(wait_word, a, gate.at, 10);
  CALL(record, event, a);
  CALL(wait, b, event);
  CALL(write_word, b, other.at, 2);
  std::this_thread::sleep_for(kSettled);
  need(other.get() == 1, "a wait is for the last record of an event");
  CALL(destroy_event, event);  // waits for it still hold
  gate.set(10);
  need(other.becomes(2), "an event may be destroyed while streams wait for it");
  drain(a, "waits");
  CALL(destroy_stream, free_stream);
}

// A wait uses the last record at the `wait` call, not when the stream reaches it.
void check_recorded(void* a, void* b) {
  const Word gate, hold, passed;
  void* event = nullptr;
  CALL(create_event, &event);
  CALL(record, event, a);
  drain(a, "a record");
  CALL(wait_word, b, hold.at, 1);
  CALL(wait, b, event);
  CALL(write_word, b, passed.at, 1);
  CALL(wait_word, a, gate.at, 1);
  CALL(record, event, a);
  hold.set(1);
  need(passed.becomes(1), "a wait is for the last record at the time of the call, not a later one");
  gate.set(1);
  drain(a, "a record behind a wait");
  drain(b, "a wait for an event");
  CALL(destroy_event, event);
}

void check_destroy_stream() {
  const Word gate, passed;
  void* const stream = made_stream();
  CALL(wait_word, stream, gate.at, 1);
  CALL(write_word, stream, passed.at, 1);
  enqueued([&] { CALL(destroy_stream, stream); }, "destroy_stream");
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  gate.set(1);
  need(passed.becomes(1), "what is enqueued on a stream goes on after destroy_stream");
}

// The host sees data copied before a word was written; streams see data written before the word.
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
  std::this_thread::sleep_for(kSettled);
  need(calls == 0, "a stream calls the host when it comes there");
  gate.set(1);
  drain(stream, "calls of the host");
  need(calls == 11, "a stream goes on once the host's function has returned");
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
  for (size_t t = 1; t <= kThreads; ++t) {
    threads.emplace_back([index, t] {
      own_watched = t;
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

// Integers have no mantissa. A float whose bits are all 1, except the sign, is a NaN.
struct TypeRow {
  hetcclDataType_t type;
  const char* name;
  size_t bytes;
  bool is_signed;
  int mantissa, exponent;  // bits
};
constexpr TypeRow kTypes[] = {{hetcclInt8, "int8", 1, true, 0, 0},
                              {hetcclUint8, "uint8", 1, false, 0, 0},
                              {hetcclInt16, "int16", 2, true, 0, 0},
                              {hetcclUint16, "uint16", 2, false, 0, 0},
                              {hetcclInt32, "int32", 4, true, 0, 0},
                              {hetcclUint32, "uint32", 4, false, 0, 0},
                              {hetcclInt64, "int64", 8, true, 0, 0},
                              {hetcclUint64, "uint64", 8, false, 0, 0},
                              {hetcclFloat16, "float16", 2, true, 10, 5},
                              {hetcclBfloat16, "bfloat16", 2, true, 7, 8},
                              {hetcclFloat32, "float32", 4, true, 23, 8},
                              {hetcclFloat64, "float64", 8, true, 52, 11},
                              {hetcclFloat8e4m3, "float8_e4m3", 1, true, 3, 4},
                              {hetcclFloat8e5m2, "float8_e5m2", 1, true, 2, 5}};
struct OpRow {
  hetcclRedOp_t op;
  const char* name;
};
constexpr OpRow kOps[] = {{hetcclSum, "sum"}, {hetcclProd, "prod"}, {hetcclMax, "max"},
                          {hetcclMin, "min"}, {hetcclAvg, "avg"},   {hetcclBand, "band"},
                          {hetcclBor, "bor"}, {hetcclBxor, "bxor"}};

// A value as an element, rounded to nearest even. No value is a negative zero or subnormal.
uint64_t bits_of(const TypeRow& row, double value) {
  if (std::isnan(value)) return (uint64_t{1} << (row.mantissa + row.exponent)) - 1;
  if (value == 0) return 0;
  int power = 0;
  const double fraction = std::frexp(std::fabs(value), &power);
  const double significand = std::nearbyint(std::ldexp(fraction, row.mantissa + 1));
  const int bias = (1 << (row.exponent - 1)) - 1;
  const uint64_t magnitude = (static_cast<uint64_t>(power - 2 + bias) << row.mantissa) +
                             static_cast<uint64_t>(significand);
  return magnitude | static_cast<uint64_t>(value < 0) << (row.mantissa + row.exponent);
}
template <typename Whole>
uint64_t bits_of(const TypeRow& row, Whole value) {
  return static_cast<uint64_t>(value) & (~uint64_t{0} >> (64 - 8 * row.bytes));
}
bool is_nan(const TypeRow& row, uint64_t bits) {
  const uint64_t infinity = ((uint64_t{1} << row.exponent) - 1) << row.mantissa;
  const uint64_t magnitude = bits & bits_of(row, std::nan(""));
  return row.type == hetcclFloat8e4m3 ? magnitude == 0x7f : magnitude > infinity;
}

// Element `i` of source `s` of `n`: a small whole number. Odd elements of integers use the highest
// bits instead.
template <typename T>
T value_of(const TypeRow& row, hetcclRedOp_t op, size_t i, size_t s, size_t n) {
  const bool adds = op == hetcclSum || op == hetcclAvg;
  if constexpr (std::is_floating_point_v<T>) {
    // Ties: their sums depend on the order, and on the points of rounding.
    const T unit = std::ldexp(T{1}, row.mantissa + 1);
    const T ties[3][3] = {{unit, 1, 1}, {unit, 1, 0}, {unit + 2, 1, 0}};
    const size_t turn = i % 11;
    if (adds && turn < 3) return s < 3 ? ties[turn][s] : T{0};
    if (!adds && op != hetcclProd && turn == 3 && s == i % n)
      return std::numeric_limits<T>::quiet_NaN();
  }
  T value = static_cast<T>((i * 7 + s * 3) % 7) - static_cast<T>(row.is_signed || !adds ? 3 : 0);
  if (op == hetcclProd) {
    value = (i + s) % 5 == 0 ? 2 : 1;
    if (row.is_signed && (i + s) % 3 == 0) value = T{0} - value;
  }
  if constexpr (std::is_integral_v<T>)
    if (i % 2 == 1 && (s == 0 || op != hetcclProd)) value *= T{1} << (8 * row.bytes - 8);
  if constexpr (std::is_unsigned_v<T>) return bits_of(row, value);
  return value;
}

template <typename T>
T combined(const TypeRow& row, hetcclRedOp_t op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (op == hetcclBand) return a & b;
    if (op == hetcclBor) return a | b;
    if (op == hetcclBxor) return a ^ b;
  }
  if (op == hetcclMax) return a != a || a > b ? a : b;
  if (op == hetcclMin) return a != a || a < b ? a : b;
  const T result = op == hetcclProd ? a * b : a + b;
  if constexpr (std::is_floating_point_v<T>)
    if (row.bytes < 8) return static_cast<float>(result);
  return result;
}

template <typename T>
T expected(const TypeRow& row, hetcclRedOp_t op, size_t i, size_t n, uint32_t divisor) {
  T result = value_of<T>(row, op, i, 0, n);
  for (size_t s = 1; s < n; ++s) result = combined(row, op, result, value_of<T>(row, op, i, s, n));
  return static_cast<T>(result / static_cast<T>(divisor));
}

// The stream waits first: reduce must return nonetheless, and must have read the list by then.
template <typename T>
void check_reduction(void* stream, const TypeRow& row, const OpRow& op, size_t n) {
  constexpr size_t kCount = 1003, kRoom = 1024;
  const Word gate;
  const size_t bytes = kCount * row.bytes, own = n == 3 ? 2 : 0;
  std::vector<char*> sources;
  for (size_t s = 0; s < n; ++s) {
    sources.push_back(static_cast<char*>(pinned(bytes)));
    for (size_t i = 0; i < kCount; ++i) {
      const uint64_t bits = bits_of(row, value_of<T>(row, op.op, i, s, n));
      std::memcpy(sources[s] + i * row.bytes, &bits, row.bytes);  // little endian
    }
  }
  auto* memory = static_cast<char*>(allocated(2 * kRoom * row.bytes));
  auto* back = static_cast<char*>(pinned(bytes));
  std::vector<const void*> addresses(sources.begin(), sources.end());
  addresses[own] = memory;
  hetcclDeviceReduction work{};
  work.size = sizeof work;
  work.result = n == 2 ? memory + kRoom * row.bytes : memory;  // otherwise in place
  work.sources = addresses.data();
  work.n_sources = n;
  work.count = kCount;
  work.type = row.type;
  work.op = op.op;
  work.divisor = op.op != hetcclAvg ? 1 : row.mantissa > 0 ? 2 : 3;
  const uint32_t divisor = work.divisor;
  const void* const result = work.result;
  CALL(wait_word, stream, gate.at, 1);
  CALL(copy, stream, memory, sources[own], bytes);
  CALL(reduce, stream, &work);
  std::memset(back, 0, bytes);
  addresses.assign(n, back);
  work = {};  // the call must have read both by now
  CALL(copy, stream, back, result, bytes);
  gate.set(1);
  drain(stream, "reductions");
  for (size_t i = 0; i < kCount; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, back + i * row.bytes, row.bytes);
    const uint64_t right = bits_of(row, expected<T>(row, op.op, i, n, divisor));
    const bool lost = row.mantissa > 0 && is_nan(row, right);
    need(lost ? is_nan(row, bits) : bits == right,
         std::string("reduce gives what it should: ") + row.name + " by " + op.name);
  }
  for (char* one : sources) CALL(free_pinned, one);
  CALL(free_pinned, back);
  CALL(free, memory);
}

// Returns the number of pairs of type and operator that it claims; all of them must be right.
int check_reductions(void* stream) {
  int pairs = 0;
  if (device->reduce == nullptr) return pairs;
  for (const TypeRow& row : kTypes) {
    for (const OpRow& op : kOps) {
      if ((row.mantissa > 0 && op.op >= hetcclBand) || device->reduces(row.type, op.op) != 1)
        continue;
      ++pairs;
      const auto check = row.mantissa > 0 ? check_reduction<double>
                         : row.is_signed  ? check_reduction<int64_t>
                                          : check_reduction<uint64_t>;
      for (const size_t n : {1, 2, 3, 16}) check(stream, row, op, n);
    }
  }
  return pairs;
}

// Whether a text of a description is valid.
template <size_t kBytes>
bool is_text(const char (&text)[kBytes]) {
  const size_t length = strnlen(text, kBytes);
  const auto is_control = [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; };
  return length < kBytes && std::none_of(text, text + length, is_control);
}

hetcclDeviceDescription described(int index) {
  hetcclDeviceDescription description{};
  CALL(describe, index, &description);
  need(is_text(description.model) && is_text(description.architecture) &&
           is_text(description.bus_id),
       "texts of a description end with a 0, and have no control characters");
  need(description.model[0] != 0 && description.architecture[0] != 0,
       "a device has a model and an architecture");
  return description;
}

// Tests `use` and `current` on this thread.
void check_use(int index) {
  int current = 0;
  CALL(use, index);
  CALL(use, -1);
  CALL(current, &current);
  need(current == -1 || current == index, "after use(-1) a thread has no device, or keeps its own");
  CALL(use, index);
}

void check_capturing(void* stream) {
  int capturing = 0;
  if (device->is_capturing != nullptr) CALL(is_capturing, stream, &capturing);
  need(capturing != 1, "a stream that nobody captures is not capturing");
}

void check_device(int index) {
  const hetcclDeviceDescription description = described(index);
  check_use(index);
  void *a = made_stream(), *b = made_stream();
  check_capturing(a);
  check_capturing(nullptr);
  check_copies(a, ((index == 0 ? size_t{24} : size_t{4}) << 20) + 3);
  check_copies(nullptr, 4099);  // the default stream
  check_waits(a, b);
  check_waits(nullptr, b);
  check_recorded(a, b);
  check_destroy_stream();
  check_order(a);
  check_host_calls(a);
  check_pin(a);
  check_threads(index);
  const int reductions = check_reductions(a);
  CALL(destroy_stream, a);
  CALL(destroy_stream, b);
  std::printf("%s:%d conforms: %s, %s%s%s, %d reductions checked\n", device->name, index,
              description.model, description.architecture, description.bus_id[0] != 0 ? " at " : "",
              description.bus_id, reductions);
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

bool is_name(const char* name) {
  if (name == nullptr) return false;
  const std::string text(name, strnlen(name, 32));
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (const char* own : {"host", "cuda", "hip", "nccl", "rccl", "none", "shm", "tcp"})
    if (text == own) return false;
  return !text.empty() && text.size() < 32 && std::all_of(text.begin(), text.end(), good);
}

void check_table() {
#define SLOT(name) std::make_pair(device->name != nullptr, #name)
  const std::pair<bool, const char*> calls[] = {
      SLOT(error_text),     SLOT(count),        SLOT(describe),      SLOT(use),
      SLOT(current),        SLOT(allocate),     SLOT(free),          SLOT(allocate_pinned),
      SLOT(free_pinned),    SLOT(pin),          SLOT(unpin),         SLOT(create_stream),
      SLOT(destroy_stream), SLOT(create_event), SLOT(destroy_event), SLOT(record),
      SLOT(wait),           SLOT(wait_word),    SLOT(write_word),    SLOT(copy),
      SLOT(call_host)};
  for (const auto& [there, call] : calls) need(there, std::string("its table lacks ") + call);
  need((device->reduces != nullptr) == (device->reduce != nullptr),
       "it has reduces and reduce, or neither");
  need(is_name(device->name), "its name is 1 to 31 of a-z, 0-9 and _, and none of hetccl's own");
  const size_t version = device->version != nullptr ? strnlen(device->version, 64) : 0;
  need(version > 0 && version < 64, "its version is 1 to 63 characters");
  need(device->capabilities == 0, "it declares no capabilities");
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
  check_table();
  std::thread(watch).detach();
  int devices = 0;
  CALL(count, &devices);
  if (devices < 1) fail(2, "it finds no device");
  for (int i = 0; i < devices; ++i) check_device(i);
  return 0;
}
