// Tests an adaptor (hetccl/adaptor.h), which it loads as hetccl does. Needs only the header of
// hetccl:
//   g++ -std=c++17 -I.../include conformance.cc -ldl -o conformance
//   conformance ADAPTOR.so RANK RANKS FOLDER      each rank of a job, FOLDER empty at first
//   mpirun -n 4 conformance ADAPTOR.so FOLDER     rank and number are MPI's
// Prints the checks that it has made. Exit status: 1 at the first broken rule, 2 if it cannot
// start. Values are small whole numbers, so that sums have the same bits in any order, except where
// the bits of ranks are compared. hetccl tests libraries of devices: docs/adaptors.md.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hetccl/adaptor.h"

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<char>;

constexpr int kDeadlineMs = 60'000;
constexpr size_t kCounts[] = {0, 1, 7, 1000, 100'003};

[[noreturn]] void fail(int status, const std::string& text) {
  std::fprintf(stderr, "conformance: %s\n", text.c_str());
  std::_Exit(status);
}
void need(bool good, const std::string& rule) {
  if (!good) fail(1, "broken rule: " + rule);
}

struct TypeRow {
  hetcclDataType_t type;
  const char* name;
  size_t bytes;
  int mantissa, exponent;  // bits; 0: an integer
};
constexpr TypeRow kTypes[] = {{hetcclInt8, "int8", 1, 0, 0},
                              {hetcclUint8, "uint8", 1, 0, 0},
                              {hetcclInt16, "int16", 2, 0, 0},
                              {hetcclUint16, "uint16", 2, 0, 0},
                              {hetcclInt32, "int32", 4, 0, 0},
                              {hetcclUint32, "uint32", 4, 0, 0},
                              {hetcclInt64, "int64", 8, 0, 0},
                              {hetcclUint64, "uint64", 8, 0, 0},
                              {hetcclFloat16, "float16", 2, 10, 5},
                              {hetcclBfloat16, "bfloat16", 2, 7, 8},
                              {hetcclFloat32, "float32", 4, 23, 8},
                              {hetcclFloat64, "float64", 8, 52, 11},
                              {hetcclFloat8e4m3, "float8_e4m3", 1, 3, 4},
                              {hetcclFloat8e5m2, "float8_e5m2", 1, 2, 5}};
constexpr const TypeRow &kUint8 = kTypes[1], &kInt32 = kTypes[4], &kFloat32 = kTypes[10],
                        &kFloat64 = kTypes[11];
// A type of a later hetccl.
constexpr TypeRow kUnknown = {static_cast<hetcclDataType_t>(66), "a type it does not know", 16, 0,
                              0};
struct OpRow {
  hetcclRedOp_t op;
  const char* name;
};
constexpr OpRow kOps[] = {{hetcclSum, "sum"},  {hetcclProd, "prod"}, {hetcclMax, "max"},
                          {hetcclMin, "min"},  {hetcclBand, "band"}, {hetcclBor, "bor"},
                          {hetcclBxor, "bxor"}};

// Stores a value >= 0 as an element.
void store(const TypeRow& type, char* at, double value) {
  uint64_t bits = static_cast<uint64_t>(value);
  if (type.mantissa > 0 && value > 0) {
    int power = 0;
    const double fraction = std::frexp(value, &power);
    const int bias = (1 << (type.exponent - 1)) - 1;
    bits = static_cast<uint64_t>(power - 2 + bias) << type.mantissa;
    bits += static_cast<uint64_t>(std::ldexp(fraction, type.mantissa + 1));
  }
  std::memcpy(at, &bits, type.bytes);  // little endian
}

struct Job {
  const hetcclLibraryAdaptor* library;
  int rank, n;
  std::string folder;
  void* communicator = nullptr;

  std::string text_of(int code) const {
    const char* text = library->error_text(code);
    return text != nullptr ? text : "error " + std::to_string(code);
  }
  void check(int code, const std::string& what) const {
    need(code == 0, what + ": " + text_of(code));
  }
  void* start(const hetcclLibraryWork& work) const {
    void* request = nullptr;
    check(library->start(communicator, &work, &request), "start");
    return request;
  }
  bool test(void* request) const {
    int done = 0;
    check(library->test(communicator, request, &done), "test");
    return done != 0;
  }
  void wait(void* request) const {
    const auto end = Clock::now() + std::chrono::milliseconds(kDeadlineMs);
    while (!test(request)) {
      need(Clock::now() < end, "a call is complete within its deadline");
      std::this_thread::yield();
    }
  }
  void run(const hetcclLibraryWork& work) const { wait(start(work)); }
  bool has(uint32_t capability) const { return (library->capabilities & capability) != 0; }
  bool reduces(const TypeRow& type, hetcclRedOp_t op) const {
    return (type.mantissa == 0 || op < hetcclBand) && library->reduces(type.type, op) == 1;
  }
  bool sums() const { return reduces(kInt32, hetcclSum); }
};

hetcclLibraryWork work_of(hetcclLibraryCall call, const TypeRow& type,
                          const std::vector<hetcclLibraryPiece>& pieces,
                          hetcclRedOp_t op = hetcclSum) {
  hetcclLibraryWork work{};
  work.size = sizeof work;
  work.call = call;
  work.type = type.type;
  work.element_bytes = type.bytes;
  work.op = op;
  work.pieces = pieces.data();
  work.n_pieces = pieces.size();
  return work;
}

// The element of `rank`; products stay within all types' range.
int value_of(int rank, size_t i, hetcclRedOp_t op) {
  const int value = static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % 4);
  if (op == hetcclProd) return i % 5 == static_cast<size_t>(rank) ? 2 : 1;
  if (op == hetcclSum) return static_cast<int>(i % 4) == rank % 4 && rank < 4 ? 3 : 0;
  return value;
}
Bytes contribution(int rank, const TypeRow& type, size_t count, hetcclRedOp_t op) {
  Bytes bytes(count * type.bytes);
  for (size_t i = 0; i < count; ++i)
    store(type, bytes.data() + i * type.bytes, value_of(rank, i, op));
  return bytes;
}
Bytes expected(int n, const TypeRow& type, size_t count, hetcclRedOp_t op) {
  Bytes bytes(count * type.bytes);
  for (size_t i = 0; i < count; ++i) {
    int result = value_of(0, i, op);
    for (int r = 1; r < n; ++r) {
      const int one = value_of(r, i, op);
      result = op == hetcclSum    ? result + one
               : op == hetcclProd ? result * one
               : op == hetcclMax  ? std::max(result, one)
               : op == hetcclMin  ? std::min(result, one)
               : op == hetcclBand ? result & one
               : op == hetcclBor  ? result | one
                                  : result ^ one;
    }
    store(type, bytes.data() + i * type.bytes, result);
  }
  return bytes;
}

void check_all_reduce(const Job& job, const TypeRow& type, const OpRow& op, size_t count,
                      bool in_place) {
  const std::string name = std::string("all-reduce of ") + type.name + " by " + op.name;
  Bytes send = contribution(job.rank, type, count, op.op), recv(send.size());
  const Bytes mine = send;
  char* to = in_place ? send.data() : recv.data();
  job.run(work_of(hetcclLibraryAllReduce, type, {{0, -1, send.data(), to, count}}, op.op));
  need((in_place ? send : recv) == expected(job.n, type, count, op.op), name + " is right");
  need(in_place || send == mine, name + " leaves its input");
}

void check_reduce(const Job& job, const TypeRow& type, const OpRow& op, int root) {
  constexpr size_t kCount = 517;
  const Bytes send = contribution(job.rank, type, kCount, op.op);
  Bytes recv(send.size());
  job.run(
      work_of(hetcclLibraryReduce, type, {{root, -1, send.data(), recv.data(), kCount}}, op.op));
  need(job.rank != root || recv == expected(job.n, type, kCount, op.op),
       std::string("reduce of ") + type.name + " by " + op.name + " is right");
}

void check_reductions(const Job& job) {
  int pairs = 0;
  for (const TypeRow& type : kTypes) {
    for (const OpRow& op : kOps) {
      if (!job.reduces(type, op.op)) continue;
      for (const size_t count : kCounts)
        for (const bool in_place : {false, true}) check_all_reduce(job, type, op, count, in_place);
      check_reduce(job, type, op, pairs++ % job.n);
    }
  }
  if (job.rank == 0) std::printf("reductions of %d pairs of type and operator\n", pairs);
}

// These sums depend on the order of the ranks. Each rank compares its bits with the first rank's.
void check_same_bits(const Job& job) {
  std::mt19937_64 random(static_cast<uint64_t>(job.rank) + 1);
  for (const TypeRow& type : kTypes) {
    if (type.mantissa == 0 || !job.reduces(type, hetcclSum)) continue;
    for (const size_t count : {size_t{50}, size_t{20'000}}) {
      Bytes mine(count * type.bytes), first;
      for (size_t i = 0; i < count; ++i)
        store(type, &mine[i * type.bytes], 1 + static_cast<double>(random() % 1'000'003) / 4e5);
      job.run(work_of(hetcclLibraryAllReduce, type, {{0, -1, mine.data(), mine.data(), count}}));
      first = mine;
      job.run(work_of(hetcclLibraryBroadcast, type, {{0, -1, first.data(), first.data(), count}}));
      need(mine == first, std::string("all ranks get the same bits of sums of ") + type.name);
    }
  }
}

template <typename Float>
void check_nan(const Job& job, const TypeRow& type) {
  for (const hetcclRedOp_t op : {hetcclMax, hetcclMin}) {
    if (!job.reduces(type, op)) continue;
    for (int which = 0; which < job.n; ++which) {
      const Float nan = std::numeric_limits<Float>::quiet_NaN();
      Float value = job.rank == which ? nan : Float(job.rank);
      job.run(work_of(hetcclLibraryAllReduce, type, {{0, -1, &value, &value, 1}}, op));
      need(std::isnan(value), "maxima and minima with a NaN are NaN");
    }
  }
}

// Random pieces, the same on all ranks. Broadcasts use all types in turn.
void check_pieces(const Job& job, bool reduce, uint64_t seed) {
  std::mt19937_64 random(seed);
  const TypeRow& type = reduce ? kInt32 : kTypes[seed / 2 % std::size(kTypes)];
  const bool sends = job.has(HETCCL_LIBRARY_SENDS);
  const size_t n_pieces = random() % 9;
  std::vector<hetcclLibraryPiece> pieces;
  std::vector<Bytes> from(n_pieces), to(n_pieces);
  for (size_t p = 0; p < n_pieces; ++p) {
    const int root = static_cast<int>(random() % static_cast<uint64_t>(job.n));
    const int receiver = !reduce && sends && random() % 3 == 0
                             ? static_cast<int>(random() % static_cast<uint64_t>(job.n))
                             : -1;
    const size_t count = random() % 4 == 0 ? random() % 3 : random() % 20'000;
    const bool in_place = random() % 2 == 0;
    from[p] = contribution(reduce ? job.rank : root, type, count, hetcclSum);
    if (!reduce && job.rank != root) from[p].assign(from[p].size(), 0);
    to[p] = Bytes(from[p].size());
    pieces.push_back(
        {root, receiver, from[p].data(), in_place ? from[p].data() : to[p].data(), count});
  }
  job.run(work_of(reduce ? hetcclLibraryReduce : hetcclLibraryBroadcast, type, pieces));
  for (size_t p = 0; p < n_pieces; ++p) {
    const hetcclLibraryPiece& piece = pieces[p];
    const bool has =
        reduce ? piece.root == job.rank : piece.receiver < 0 || piece.receiver == job.rank;
    if (!has) continue;
    const Bytes right = reduce ? expected(job.n, type, piece.count, hetcclSum)
                               : contribution(piece.root, type, piece.count, hetcclSum);
    need(right.empty() || std::memcmp(piece.recv, right.data(), right.size()) == 0,
         std::string(reduce ? "a reduction" : "a broadcast") + " of pieces of " + type.name +
             " is right, case " + std::to_string(seed));
  }
}

// The bytes that a rank sends to another: random, and different for each pair.
Bytes letter(int from, int to, const TypeRow& type, uint64_t seed) {
  const size_t count = (static_cast<size_t>(from * 31 + to * 17) + seed) % 5 * 1501;
  std::mt19937_64 random(static_cast<uint64_t>(from * 1009 + to) * 64 + seed);
  Bytes bytes(count * type.bytes);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random()); });
  return bytes;
}

// Lists a letter as one message or two. Either end may leave out a message without elements.
void list(std::vector<hetcclLibraryMessage>& messages, int peer, int sends, Bytes& letter,
          size_t element_bytes, uint64_t seed) {
  const size_t count = letter.size() / element_bytes, first = seed % 2 == 0 ? count : count / 3;
  for (const auto& [at, n] : {std::pair(size_t{0}, first), std::pair(first, count - first)})
    if (n > 0 || (seed + static_cast<uint64_t>(sends)) % 3 == 0)
      messages.push_back({peer, sends, letter.data() + at * element_bytes, n});
}

void check_exchange(const Job& job, const TypeRow& type, uint64_t seed) {
  const bool to_itself_in_place = seed % 4 < 2;
  std::vector<Bytes> out, in;
  for (int peer = 0; peer < job.n; ++peer) {
    out.push_back(letter(job.rank, peer, type, seed));
    in.emplace_back(letter(peer, job.rank, type, seed).size());
  }
  std::vector<hetcclLibraryMessage> messages;
  for (int peer = job.n - 1; peer >= 0; --peer) {
    const auto p = static_cast<size_t>(peer);
    const bool in_place = peer == job.rank && to_itself_in_place;
    list(messages, peer, 0, in_place ? out[p] : in[p], type.bytes, seed);
    list(messages, peer, 1, out[p], type.bytes, seed);
  }
  hetcclLibraryWork work = work_of(hetcclLibraryExchange, type, {});
  work.messages = messages.data();
  work.n_messages = messages.size();
  void* request = job.start(work);
  messages.assign(messages.size(), {-1, 0, nullptr, 1});  // only start may read the lists
  job.wait(request);
  const auto own = static_cast<size_t>(job.rank);
  if (to_itself_in_place) in[own] = out[own];
  for (int peer = 0; peer < job.n; ++peer) {
    need(in[static_cast<size_t>(peer)] == letter(peer, job.rank, type, seed),
         std::string("an exchange of ") + type.name + " is right, case " + std::to_string(seed));
  }
}

Bytes letters(int from, size_t bytes) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(i * 7 + static_cast<size_t>(from));
  return made;
}

// Elements of a type that only a later hetccl has: the adaptor knows only their size.
void check_unknown_type(const Job& job) {
  constexpr size_t kCount = 1000;
  const size_t bytes = kCount * kUnknown.bytes;
  for (const OpRow& op : kOps)
    need(job.library->reduces(kUnknown.type, op.op) != 1, "it reduces no type it does not know");
  for (int root = 0; root < job.n; ++root) {
    Bytes send = letters(job.rank, bytes), recv(bytes);
    job.run(
        work_of(hetcclLibraryBroadcast, kUnknown, {{root, -1, send.data(), recv.data(), kCount}}));
    need(recv == letters(root, bytes), "a broadcast moves a type it does not know");
  }
  if ((job.library->capabilities & HETCCL_LIBRARY_EXCHANGES) == 0) return;
  const int next = (job.rank + 1) % job.n, last = (job.rank + job.n - 1) % job.n;
  Bytes send = letters(job.rank, bytes), recv(bytes);
  const std::vector<hetcclLibraryMessage> messages = {{next, 1, send.data(), kCount},
                                                      {last, 0, recv.data(), kCount}};
  hetcclLibraryWork work = work_of(hetcclLibraryExchange, kUnknown, {});
  work.messages = messages.data();
  work.n_messages = messages.size();
  job.run(work);
  need(recv == letters(last, bytes), "an exchange moves a type it does not know");
}

void check_order(const Job& job) {
  constexpr size_t kCalls = 40;
  std::vector<int32_t> values(kCalls);
  std::vector<void*> requests;
  for (size_t i = 0; i < kCalls; ++i) {
    values[i] = static_cast<int32_t>(i);
    requests.push_back(
        job.start(work_of(hetcclLibraryAllReduce, kInt32, {{0, -1, &values[i], &values[i], 1}})));
  }
  for (size_t i = kCalls; i-- > 0;) job.wait(requests[i]);
  for (size_t i = 0; i < kCalls; ++i)
    need(values[i] == static_cast<int32_t>(i) * job.n, "many calls at once are right");
}

bool exists(const std::string& path) {
  return std::ifstream(path).good();
}
bool appears(const std::string& path) {
  const auto end = Clock::now() + std::chrono::milliseconds(kDeadlineMs);
  while (!exists(path) && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return exists(path);
}

// Each rank is late once, when the others have returned from start and test. Nothing may wait for
// it there, and calls that need it must not complete before it arrives. Files tell each rank's
// progress.
void check_late_rank(const Job& job, hetcclLibraryCall call) {
  for (int late = 0; late < job.n; ++late) {
    const std::string turn =
        job.folder + "/late-" + std::to_string(call) + "-" + std::to_string(late) + "-";
    std::vector<int32_t> mine(4000, job.rank), result(4000, -1);
    const std::vector<hetcclLibraryPiece> pieces = {{late, -1, mine.data(), result.data(), 4000}};
    std::vector<hetcclLibraryMessage> messages = {
        {(job.rank + 1) % job.n, 1, mine.data(), 4000},
        {(job.rank + job.n - 1) % job.n, 0, result.data(), 4000}};
    hetcclLibraryWork work = work_of(call, kInt32, pieces);
    if (call == hetcclLibraryBarrier || call == hetcclLibraryExchange) work.n_pieces = 0;
    if (call == hetcclLibraryExchange) {
      work.messages = messages.data();
      work.n_messages = messages.size();
    }
    job.run(work_of(hetcclLibraryBarrier, kUint8, {}));
    if (job.rank == late) {
      for (int other = 0; other < job.n; ++other)
        if (other != late)
          need(appears(turn + std::to_string(other)), "start and test do not wait");
      std::ofstream(turn + "comes");
    }
    void* request = job.start(work);
    const bool done = job.test(request);
    if (job.rank != late) std::ofstream(turn + std::to_string(job.rank));
    if (!done) job.wait(request);
    const bool needs = call == hetcclLibraryBarrier || call == hetcclLibraryAllReduce;
    need(!needs || exists(turn + "comes"),
         "a barrier and a sum are complete on no rank before all have started them");
  }
}

const char* variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name)) return value;
  return nullptr;
}

// Returns the first rank's bytes, which a file carries.
Bytes share(const Job& job, const std::string& path, const std::function<Bytes()>& make) {
  if (job.rank == 0) {
    const Bytes bytes = make();
    std::ofstream(path + ".new", std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    need(std::rename((path + ".new").c_str(), path.c_str()) == 0, "the folder can be written");
    return bytes;
  }
  if (!appears(path)) fail(2, "rank 0 wrote no " + path);
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
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

const hetcclLibraryAdaptor* load(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(2, dlerror());
  const auto entry = reinterpret_cast<hetcclAdaptorEntry>(dlsym(handle, HETCCL_ADAPTOR_ENTRY));
  need(entry != nullptr, "it exports " HETCCL_ADAPTOR_ENTRY);
  const hetcclAdaptorTable* table = as_compiled(entry(HETCCL_ADAPTOR_ABI));
  need(table != nullptr && table->abi == HETCCL_ADAPTOR_ABI, "it serves this ABI");
  const hetcclLibraryAdaptor* library = as_compiled(table->library);
  need(library != nullptr, "it has a library");
  if (library->device != nullptr)
    fail(2, std::string("its library is for the device ") + library->device +
                ", which this program does not test: run `hetccl selftest --devices " +
                library->device + ":0," + library->device + ":1`");
  need(library->error_text && library->score && library->reduces && library->make_id &&
           library->init && library->start && library->test && library->destroy,
       "its table is complete");
  return library;
}

void check_communicator(const Job& job) {
  const bool exchanges = job.has(HETCCL_LIBRARY_EXCHANGES);
  for (uint64_t seed = 1; seed <= 40; ++seed)
    if (seed % 2 == 1 || job.sums()) check_pieces(job, seed % 2 == 0, seed);
  for (uint64_t seed = 0; exchanges && seed < std::size(kTypes); ++seed)
    check_exchange(job, kTypes[seed], seed);
  check_unknown_type(job);
  check_same_bits(job);
  check_nan<float>(job, kFloat32);
  check_nan<double>(job, kFloat64);
  if (job.sums()) check_order(job);
}

// Tests all types and operators, and late ranks. Takes longer: once per job.
void check_thoroughly(const Job& job) {
  std::vector<hetcclLibraryCall> calls = {hetcclLibraryBarrier, hetcclLibraryBroadcast};
  if (job.has(HETCCL_LIBRARY_EXCHANGES)) calls.push_back(hetcclLibraryExchange);
  if (job.sums()) calls.insert(calls.end(), {hetcclLibraryAllReduce, hetcclLibraryReduce});
  check_reductions(job);
  for (const hetcclLibraryCall call : calls) check_late_rank(job, call);
}

void check_all(Job& job) {
  for (int round = 0; round < 2; ++round) {
    const Bytes id = share(job, job.folder + "/id" + std::to_string(round), [&] {
      Bytes bytes(HETCCL_ADAPTOR_ID_BYTES);
      job.check(job.library->make_id(job.n, bytes.data()), "make_id");
      return bytes;
    });
    job.check(job.library->init(id.data(), job.n, job.rank, kDeadlineMs, &job.communicator),
              "init");
    check_communicator(job);
    if (round == 0) check_thoroughly(job);
    job.run(work_of(hetcclLibraryBarrier, kUint8, {}));
    job.library->destroy(job.communicator);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool by_launcher = argc == 3;
  if (!by_launcher && argc != 5) fail(2, "usage: conformance ADAPTOR.so [RANK RANKS] FOLDER");
  const char* rank = by_launcher ? variable({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) : argv[2];
  const char* ranks = by_launcher ? variable({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) : argv[3];
  if (rank == nullptr || ranks == nullptr) fail(2, "give rank and number of ranks: no mpirun here");
  Job job{load(argv[1]), std::atoi(rank), std::atoi(ranks), argv[argc - 1]};
  const int score = job.library->score();
  if (score <= 0) fail(2, "its score is 0: it cannot serve this process");
  check_all(job);
  if (job.rank == 0) {
    std::printf("%s %s conforms: %d ranks, score %d, capabilities 0x%x\n", job.library->name,
                job.library->version, job.n, score, job.library->capabilities);
  }
  return 0;
}
