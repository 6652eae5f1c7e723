#include "mpi/library.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/dynlib.h"

namespace hetccl::mpi {
namespace {

// Sonames of MPICH, of Open MPI and of MPI 5's standard interface. Debian's MPICH is libmpich.so.
constexpr std::array kNames = {"libmpi.so.", "libmpi_abi.so.", "libmpich.so.", "libmpi_cray.so."};
// Sonames of the Fortran libraries.
constexpr std::array kFortranNames = {"libmpi_mpifh", "libmpi_usempif08", "libmpifort",
                                      "libmpichfort"};

// Opens the MPI that the process has loaded, even outside the global scope: an interpreter loads
// modules, and their dependencies, locally.
std::vector<void*> open_loaded(std::span<const char* const> names) {
  std::vector<void*> handles;
  for (const char* name : names) {
    for (const std::string& path : loaded_libraries(name)) {
      if (void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) handles.push_back(handle);
    }
  }
  return handles;
}

void* find_in(std::span<const char* const> names, const char* symbol) {
  void* found = nullptr;
  for (void* handle : open_loaded(names)) {
    if (found == nullptr) found = dlsym(handle, symbol);
    dlclose(handle);
  }
  return found;
}

// Offset from the largest tag, which tools like, to one that programs hardly use.
constexpr int kTagBelowLargest = 24'661;

Function comm_size("PMPI_Comm_size"), comm_rank("PMPI_Comm_rank"),
    comm_test_inter("PMPI_Comm_test_inter"), comm_remote_size("PMPI_Comm_remote_size"),
    comm_group("PMPI_Comm_group"), group_free("PMPI_Group_free"),
    translate("PMPI_Group_translate_ranks"), comm_split("PMPI_Comm_split"),
    comm_free("PMPI_Comm_free"), bcast_function("PMPI_Bcast"), allgather("PMPI_Allgather"),
    allreduce_function("PMPI_Allreduce"), reduce_function("PMPI_Reduce"),
    send_function("PMPI_Send"), recv_function("PMPI_Recv"), iprobe("PMPI_Iprobe"),
    type_size_x("PMPI_Type_size_x"), get_extent("PMPI_Type_get_extent"),
    get_true_extent("PMPI_Type_get_true_extent"), get_envelope("PMPI_Type_get_envelope"),
    get_contents("PMPI_Type_get_contents"), get_envelope_c("PMPI_Type_get_envelope_c"),
    get_contents_c("PMPI_Type_get_contents_c"), type_free("PMPI_Type_free"),
    type_dup("PMPI_Type_dup"), query_thread("PMPI_Query_thread"), get_attr("PMPI_Comm_get_attr"),
    create_keyval("PMPI_Comm_create_keyval"), set_attr("PMPI_Comm_set_attr"),
    call_errhandler("PMPI_Comm_call_errhandler"), add_class("PMPI_Add_error_class"),
    add_code("PMPI_Add_error_code"), add_string("PMPI_Add_error_string"), abort_job("PMPI_Abort");

int copy_nothing(Word, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return 0;
}

const Abi& recognise(void* init) {
  if (find_symbol("ompi_mpi_comm_world") != nullptr) return kOpenMpiAbi;
  Dl_info info;
  if (dladdr(init, &info) != 0 && std::strstr(info.dli_fname, "libmpi_abi") != nullptr) {
    return kStandardAbi;
  }
  return kMpichAbi;
}

Word resolve(const Constant& constant) {
  return constant.symbol == nullptr ? constant.value : from_pointer(find_symbol(constant.symbol));
}

Maker ask_maker() {
  void* function = find_symbol("PMPI_Get_library_version");
  std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING is at most 8192
  int length = 0;
  if (function == nullptr ||
      invoke(function, Words(from_pointer(text.data()), from_pointer(&length))) != 0) {
    return Maker::Other;
  }
  const std::string_view version(text.data());
  const auto says = [&](std::string_view name) { return version.find(name) != version.npos; };
  if (says("Open MPI")) return Maker::OpenMpi;
  if (says("Intel(R) MPI")) return Maker::Intel;
  return says("MPICH Version") ? Maker::Mpich : Maker::Other;
}

size_t slot_of(Word handle, size_t slots) {
  return static_cast<size_t>((handle * 0x9E3779B97F4A7C15U) >> 40U) & (slots - 1);
}

}  // namespace

void* find_symbol(const char* name) {
  // A program linked at a fixed address has copy relocations: its own copies of the MPI's
  // variables.
  if (void* found = dlsym(RTLD_DEFAULT, name)) return found;
  return find_in(kNames, name);
}

void* find_next(const char* name) {
  if (void* found = dlsym(RTLD_NEXT, name)) return found;
  if (void* found = find_in(kFortranNames, name)) return found;
  return find_in(kNames, name);
}

namespace {

// Calls MPI_Initialized or MPI_Finalized, which are allowed at any time.
bool query_flag(const char* name) {
  void* const query = find_symbol(name);
  int flag = 0;
  return query != nullptr && invoke(query, Words(from_pointer(&flag))) == 0 && flag != 0;
}

// Whether the MPI may be asked about device memory now. Open MPI may at any time.
bool answers_questions() {
  return find_symbol("ompi_mpi_comm_world") != nullptr ||
         (query_flag("PMPI_Initialized") && !query_flag("PMPI_Finalized"));
}

}  // namespace

VendorSet ask_device_memory() {
  using device::gpu::kCuda, device::gpu::kHip;
  // Open MPI's function says "rocm", MPICH's "hip".
  constexpr std::pair<const device::gpu::Vendor*, const char*> kQuestions[] = {
      {&kCuda, "MPIX_Query_cuda_support"},
      {&kHip, "MPIX_Query_hip_support"},
      {&kHip, "MPIX_Query_rocm_support"}};
  VendorSet taken = 0;
  if (!answers_questions()) return taken;
  for (const auto& [vendor, name] : kQuestions) {
    void* const query = find_next(name);
    if (query != nullptr && invoke(query, Words()) == 1) taken |= set_of(*vendor);
  }
  return taken;
}

void* Function::address() {
  void* known = address_.load(std::memory_order_acquire);
  if (known != nullptr || missing_.load(std::memory_order_relaxed)) return known;
  known = find_symbol((std::string(name_[0]) + name_[1] + name_[2]).c_str());
  address_.store(known, std::memory_order_release);
  if (known == nullptr && Library::get() != nullptr) missing_.store(true);
  return known;
}

Library* Library::get() {
  static std::atomic<Library*> found{nullptr};
  if (Library* known = found.load(std::memory_order_acquire)) return known;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (found.load(std::memory_order_relaxed) == nullptr) {
    if (void* init = find_symbol("PMPI_Init")) {
      found.store(new Library(recognise(init)), std::memory_order_release);  // never freed
    }
  }
  return found.load(std::memory_order_relaxed);
}

const Library& mpi() {
  return *Library::get();
}

Library::Library(const Abi& its_abi) : abi(its_abi) {
  comm_world = resolve(abi.comm_world);
  comm_self = resolve(abi.comm_self);
  request_null = resolve(abi.request_null);
  for (size_t i = 0; i < kTypes; ++i) types_[i] = resolve(abi.types[i]);
  for (size_t i = 0; i < kOps; ++i) ops_[i] = resolve(abi.ops[i]);
}

void Library::learn() {
  progress_tag_ = own_tag();
  takes_device_memory = ask_device_memory();
  maker = ask_maker();
  void* size = find_symbol("PMPI_Type_size");
  for (size_t i = 0; i < kTypes; ++i) {
    const TypeMeaning& meaning = kTypeMeanings[i];
    static constexpr std::array kBytes = {1, 1, 4, 4, 8, 8, 2, 4, 8};
    const int element = meaning.type >= hetcclInt16 ? 2 : kBytes[meaning.type];
    int bytes = 0;
    // A Fortran INTEGER may have 8 bytes, and a type may be missing.
    if (types_[i] == 0 || size == nullptr ||
        invoke(size, Words(types_[i], from_pointer(&bytes))) != 0) {
      continue;
    }
    if (meaning.name == std::string_view("MPI_INTEGER") && bytes > 0) {
      fortran_integer_bytes = bytes;
    }
    if (bytes != element * meaning.elements) continue;
    size_t place = slot_of(types_[i], kSlots);
    while (slots_[place].handle != 0 && slots_[place].handle != types_[i]) {
      place = (place + 1) & (kSlots - 1);
    }
    slots_[place] = {types_[i], {&meaning, bytes}};
  }
}

Word Library::load_handle(const void* place) const {
  if (abi.handle_bytes == 4) {
    uint32_t half = 0;
    std::memcpy(&half, place, sizeof(half));
    return half;
  }
  Word whole = 0;
  std::memcpy(&whole, place, sizeof(whole));
  return whole;
}

void Library::store_handle(void* place, Word handle) const {
  std::memcpy(place, &handle, abi.handle_bytes);  // hetccl supports little-endian machines only
}

Type Library::type(Word datatype) const {
  datatype = handle(datatype);
  for (size_t place = slot_of(datatype, kSlots);; place = (place + 1) & (kSlots - 1)) {
    if (slots_[place].handle == datatype) return slots_[place].type;
    if (slots_[place].handle == 0) break;
  }
  int64_t bytes = 0;
  type_size_x.call(Words(datatype, from_pointer(&bytes)));
  return {nullptr, bytes};
}

int64_t Library::extent(Word datatype) const {
  const Type known = type(datatype);
  if (known.meaning != nullptr) return known.bytes;
  int64_t low = 0, length = 0;
  get_extent.call(Words(datatype, from_pointer(&low), from_pointer(&length)));
  return length;
}

Library::Bounds Library::true_bounds(Word datatype) const {
  const Type known = type(datatype);
  if (known.meaning != nullptr) return {0, known.bytes};
  int64_t low = 0, length = 0;
  get_true_extent.call(Words(datatype, from_pointer(&low), from_pointer(&length)));
  return {low, low + length};
}

bool Library::is_contiguous(Word datatype) const {
  const Type known = type(datatype);
  if (known.meaning != nullptr) return true;
  int64_t low = 0, length = 0;
  if (get_extent.call(Words(datatype, from_pointer(&low), from_pointer(&length))) != 0)
    return false;
  if (low != 0 || length != known.bytes) return false;
  // Comparing extents is not enough: the parts may lie in another order.
  const int combiner = combiner_of(datatype);
  if (combiner == abi.combiner_named) return true;
  if (combiner != abi.combiner_dup && combiner != abi.combiner_contiguous) return false;
  const Word part = part_of(datatype);
  const bool contiguous = is_contiguous(part);
  // Handles that a query returns must be freed, unless they are predefined.
  if (is_derived(part)) free_type(part);
  return contiguous;
}

bool Library::is_derived(Word datatype) const {
  if (type(datatype).meaning != nullptr) return false;
  int combiner = 0;
  return ask_envelope(datatype, &combiner) > 0;
}

Word Library::duplicate_type(Word datatype) const {
  Word made = 0;
  type_dup.call(Words(datatype, from_pointer(&made)));
  return load_handle(&made);
}

void Library::free_type(Word datatype) const {
  type_free.call(Words(from_pointer(&datatype)));
}

// Number of datatypes that `datatype` is made of; 0 if it is predefined. Types made with large
// counts answer only to large-count functions.
int64_t Library::ask_envelope(Word datatype, int* combiner) const {
  if (get_envelope_c.address() != nullptr) {
    int64_t ignored = 0, types = 0;
    get_envelope_c.call(Words(datatype, from_pointer(&ignored), from_pointer(&ignored),
                              from_pointer(&ignored), from_pointer(&types),
                              from_pointer(combiner)));
    return types;
  }
  int ignored = 0, types = 0;
  get_envelope.call(Words(datatype, from_pointer(&ignored), from_pointer(&ignored),
                          from_pointer(&types), from_pointer(combiner)));
  return types;
}

int Library::combiner_of(Word datatype) const {
  int combiner = -1;
  static_cast<void>(ask_envelope(datatype, &combiner));
  return combiner;
}

// The type that `datatype` duplicates or repeats contiguously.
Word Library::part_of(Word datatype) const {
  int count = 0;
  int64_t large = 0, address = 0;
  Word part = 0;
  if (get_contents_c.address() != nullptr) {
    int64_t integers = 0, addresses = 0, larges = 0, types = 0;
    int combiner = 0;
    get_envelope_c.call(Words(datatype, from_pointer(&integers), from_pointer(&addresses),
                              from_pointer(&larges), from_pointer(&types),
                              from_pointer(&combiner)));
    get_contents_c.call(Words(datatype, from_int(integers), from_int(addresses), from_int(larges),
                              from_int(types), from_pointer(&count), from_pointer(&address),
                              from_pointer(&large), from_pointer(&part)));
  } else {
    const bool contiguous = combiner_of(datatype) == abi.combiner_contiguous;
    get_contents.call(Words(datatype, contiguous ? 1 : 0, 0, 1, from_pointer(&count),
                            from_pointer(&address), from_pointer(&part)));
  }
  return load_handle(&part);
}

const OpMeaning* Library::op(Word op) const {
  op = handle(op);
  for (size_t i = 0; i < kOps; ++i) {
    if (ops_[i] == op) return &kOpMeanings[i];
  }
  return nullptr;
}

bool Library::is_multithreaded() const {
  int level = 0;
  query_thread.call(Words(from_pointer(&level)));
  return level == abi.thread_multiple;
}

int Library::size(Word comm) const {
  int n = 0;
  comm_size.call(Words(comm, from_pointer(&n)));
  return n;
}

int Library::rank(Word comm) const {
  int n = 0;
  comm_rank.call(Words(comm, from_pointer(&n)));
  return n;
}

bool Library::is_inter(Word comm) const {
  int flag = 0;
  return comm_test_inter.call(Words(comm, from_pointer(&flag))) != 0 || flag != 0;
}

int Library::peers(Word comm) const {
  if (!is_inter(comm)) return size(comm);
  int n = 0;
  comm_remote_size.call(Words(comm, from_pointer(&n)));
  return n;
}

void Library::ranks_in_world(Word comm, int n, int* ranks) const {
  Word group = 0, world = 0;
  std::vector<int> mine(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) mine[static_cast<size_t>(i)] = i;
  comm_group.call(Words(comm, from_pointer(&group)));
  comm_group.call(Words(comm_world, from_pointer(&world)));
  translate.call(Words(load_handle(&group), from_int(n), from_pointer(mine.data()),
                       load_handle(&world), from_pointer(ranks)));
  group_free.call(Words(from_pointer(&group)));
  group_free.call(Words(from_pointer(&world)));
}

Word Library::split(Word comm, int color, int key) const {
  Word made = 0;
  comm_split.call(Words(comm, from_int(color), from_int(key), from_pointer(&made)));
  return load_handle(&made);
}

void Library::free_comm(Word* comm) const {
  comm_free.call(Words(from_pointer(comm)));
}

int Library::create_key(Gone gone) const {
  int key = 0;
  create_keyval.call(Words(from_pointer(reinterpret_cast<void*>(copy_nothing)),
                           from_pointer(reinterpret_cast<void*>(gone)), from_pointer(&key), 0));
  return key;
}

void Library::set_attribute(Word comm, int key, void* value) const {
  set_attr.call(Words(comm, from_int(key), from_pointer(value)));
}

void Library::broadcast(void* bytes, int count, int root, Word comm) const {
  bcast_function.call(Words(from_pointer(bytes), from_int(count), byte(), from_int(root), comm));
}

void Library::gather_all(const void* mine, void* all, int bytes, Word comm) const {
  allgather.call(Words(from_pointer(mine), from_int(bytes), byte(), from_pointer(all),
                       from_int(bytes), byte(), comm));
}

void Library::combine(int* bits, int count, Word comm) const {
  allreduce_function.call(Words(abi.in_place, from_pointer(bits), from_int(count),
                                types_[kIntIndex], ops_[kBorIndex], comm));
}

void Library::sum_on_first(const double* mine, double* sums, int count, Word comm) const {
  reduce_function.call(Words(from_pointer(mine), from_pointer(sums), from_int(count),
                             types_[kDoubleIndex], sum(), 0, comm));
}

void Library::send(const void* bytes, int count, int to, int tag, Word comm) const {
  send_function.call(
      Words(from_pointer(bytes), from_int(count), byte(), from_int(to), from_int(tag), comm));
}

void Library::receive(void* bytes, int count, int from, int tag, Word comm) const {
  recv_function.call(Words(from_pointer(bytes), from_int(count), byte(), from_int(from),
                           from_int(tag), comm, abi.status_ignore));
}

bool Library::probe(int from, int tag, Word comm) const {
  int flag = 0;
  iprobe.call(Words(from_int(from), from_int(tag), comm, from_pointer(&flag), abi.status_ignore));
  return flag != 0;
}

// Not MPI_COMM_SELF: when that is probed, MPICH looks at no other rank.
void Library::progress() const {
  static_cast<void>(probe(abi.any_source, progress_tag_, comm_world));
}

int Library::own_tag() const {
  int* largest = nullptr;
  int flag = 0;
  get_attr.call(
      Words(comm_world, from_int(abi.tag_ub), from_pointer(&largest), from_pointer(&flag)));
  const int most = flag != 0 ? *largest : 32767;  // every MPI has at least this
  return most - kTagBelowLargest;
}

int Library::raise(Word comm, int code) const {
  call_errhandler.call(Words(comm, from_int(code)));
  return code;
}

// Caches codes by text: they are never freed, and MPICH 5.0.2 crashes after a few thousand.
int Library::error_code(const std::string& text) const {
  constexpr size_t kMostCodes = 500;
  static std::mutex mutex;
  static int our_class = 0;
  static std::map<std::string, int> codes;
  const std::lock_guard lock(mutex);
  const std::string shown = text.substr(0, 250);  // MPI_MAX_ERROR_STRING is at least 256
  if (const auto known = codes.find(shown); known != codes.end()) return known->second;
  if (codes.size() == kMostCodes) return abi.err_other;
  if (our_class == 0 && add_class.call(Words(from_pointer(&our_class))) != 0) return abi.err_other;
  int code = 0;
  if (add_code.call(Words(from_int(our_class), from_pointer(&code))) != 0) return abi.err_other;
  add_string.call(Words(from_int(code), from_pointer(shown.c_str())));
  codes.emplace(shown, code);
  return code;
}

// Gives the launcher time: it may end without forwarding a rank's last output. MPICH's does so in
// MPI_Abort.
void Library::abort(int code) const {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  abort_job.call(Words(comm_world, from_int(code)));
  std::abort();
}

KeptType::KeptType(Word type, const Library& library)
    : library_(library),
      derived_(library.is_derived(type)),
      type_(derived_ ? library.duplicate_type(type) : type) {}

KeptType::~KeptType() {
  if (derived_) library_.free_type(type_);
}

}  // namespace hetccl::mpi
