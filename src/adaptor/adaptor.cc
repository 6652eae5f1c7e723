#include "adaptor/adaptor.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <list>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/dynlib.h"

namespace hetccl::adaptor {
namespace {

constexpr const char* kNoSize =
    "a table's size is none that its struct can have: set it to the sizeof";
constexpr size_t kLongestName = 31, kLongestVersion = 63, kLongestWireVersion = 31;
constexpr uint32_t kCapabilities = HETCCL_LIBRARY_JOINS_HOSTS | HETCCL_LIBRARY_JOINS_ARCHITECTURES |
                                   HETCCL_LIBRARY_EXCHANGES | HETCCL_LIBRARY_SENDS;
constexpr uint32_t kTransportCapabilities =
    HETCCL_TRANSPORT_ENCRYPTS | HETCCL_TRANSPORT_JOINS_HOSTS;

// Copies a table that may be of an older, shorter struct; its missing members become null.
template <typename Table>
Table as_compiled(const Table* table) {
  Table whole{};
  std::memcpy(&whole, table, std::min(table->size, sizeof whole));
  return whole;
}

// Returns whether the size is plausible: no struct ends within a slot.
template <typename Table>
bool has_size(const Table& table) {
  return table.size > 0 && table.size % alignof(Table) == 0;
}

bool is_name(const char* text) {
  if (text == nullptr) return false;
  const std::string_view name(text, strnlen(text, kLongestName + 1));
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), good);
}

bool is_version(const char* text) {
  if (text == nullptr) return false;
  const std::string_view version(text, strnlen(text, kLongestVersion + 1));
  const auto good = [](char c) { return c >= 0x20 && c < 0x7f; };
  return !version.empty() && version.size() <= kLongestVersion &&
         std::all_of(version.begin(), version.end(), good);
}

// Returns whether the version may become part of a transport's name.
bool is_wire_version(std::string_view version) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  return version.size() <= kLongestWireVersion && std::all_of(version.begin(), version.end(), good);
}

// The calls that a table must have: whether each is there, and its name.
using Needed = std::initializer_list<std::pair<bool, const char*>>;

// Returns the defect of a part; empty: none.
std::string check_part(const char* name, const char* version, const Names& taken,
                       const Needed& calls, uint32_t unknown) {
  if (!is_name(name) || taken.contains(name))
    return "its name is not 1 to 31 of a-z, 0-9 and _, or is one of hetccl's own";
  if (!is_version(version)) return "its version is not 1 to 63 printable characters";
  for (const auto& [there, call] : calls)
    if (!there) return format("its table lacks %s", call);
  if (unknown == 0) return "";
  return format("it declares capabilities 0x%x that this hetccl does not know", unknown);
}

// Returns the defect of a library; empty: none.
std::string check_library(const hetcclLibraryAdaptor& of, const Names& taken) {
  const bool host = of.device == nullptr;
  if (!host && !is_name(of.device))
    return "the name of its library's device is not 1 to 31 of a-z, 0-9 and _";
  if (!host && taken.contains(of.device))
    return format("its library is for %s, a device of hetccl's own, which keeps its own library",
                  of.device);
  return check_part(of.name, of.version, taken,
                    {{of.error_text != nullptr, "error_text"},
                     {!host || of.score != nullptr, "score"},
                     {of.reduces != nullptr, "reduces"},
                     {of.make_id != nullptr, "make_id"},
                     {of.init != nullptr, "init"},
                     {of.start != nullptr, "start"},
                     {of.test != nullptr, "test"},
                     {of.destroy != nullptr, "destroy"},
                     {host || of.abort != nullptr, "abort"}},
                    of.capabilities & ~kCapabilities);
}

// Returns the defect of a device; empty: none.
std::string check_device(const hetcclDeviceAdaptor& of, const Names& taken) {
  return check_part(of.name, of.version, taken,
                    {{of.error_text != nullptr, "error_text"},
                     {of.count != nullptr, "count"},
                     {of.describe != nullptr, "describe"},
                     {of.use != nullptr, "use"},
                     {of.current != nullptr, "current"},
                     {of.allocate != nullptr, "allocate"},
                     {of.free != nullptr, "free"},
                     {of.allocate_pinned != nullptr, "allocate_pinned"},
                     {of.free_pinned != nullptr, "free_pinned"},
                     {of.pin != nullptr, "pin"},
                     {of.unpin != nullptr, "unpin"},
                     {of.create_stream != nullptr, "create_stream"},
                     {of.destroy_stream != nullptr, "destroy_stream"},
                     {of.create_event != nullptr, "create_event"},
                     {of.destroy_event != nullptr, "destroy_event"},
                     {of.record != nullptr, "record"},
                     {of.wait != nullptr, "wait"},
                     {of.wait_word != nullptr, "wait_word"},
                     {of.write_word != nullptr, "write_word"},
                     {of.copy != nullptr, "copy"},
                     {of.call_host != nullptr, "call_host"},
                     {(of.reduces == nullptr) == (of.reduce == nullptr), "reduces or reduce"}},
                    of.capabilities);
}

// Returns the defect of a transport; empty: none.
std::string check_transport(const hetcclTransportAdaptor& of, const Names& taken) {
  const std::string wrong = check_part(of.name, of.version, taken,
                                       {{of.error_text != nullptr, "error_text"},
                                        {of.score != nullptr, "score"},
                                        {of.open != nullptr, "open"},
                                        {of.connect != nullptr, "connect"},
                                        {of.send != nullptr, "send"},
                                        {of.receive != nullptr, "receive"},
                                        {of.completed != nullptr, "completed"},
                                        {of.progress != nullptr, "progress"},
                                        {of.poll_fd != nullptr, "poll_fd"},
                                        {of.close != nullptr, "close"},
                                        {of.destroy != nullptr, "destroy"}},
                                       of.capabilities & ~kTransportCapabilities);
  if (!wrong.empty()) return wrong;
  return is_wire_version(of.version)
             ? ""
             : "its transport's version is not 1 to 31 of a-z, 0-9, _ and .";
}

Status refuse(const std::string& path, const std::string& reason) {
  return error(ErrorCode::Unsupported, "the adaptor %s is refused: %s", path.c_str(),
               reason.c_str());
}

// Keeps the library loaded, because threads of adaptors and of their libraries may outlive hetccl.
const DynLib& keep(DynLib library) {
  static std::mutex mutex;
  static auto* const kept = new std::list<DynLib>;
  const std::lock_guard lock(mutex);
  return kept->emplace_back(std::move(library));
}

// Takes a part if the adaptor has it.
template <typename Calls>
Status take_part(const Calls* given, std::string (*check)(const Calls&, const Names&),
                 const Names& taken, const std::string& path, std::optional<Part<Calls>>& part) {
  if (given == nullptr) return {};
  if (!has_size(*given)) return refuse(path, kNoSize);
  Part<Calls> made{as_compiled(given), "", ""};
  if (const std::string wrong = check(made.calls, taken); !wrong.empty())
    return refuse(path, wrong);
  made.name = made.calls.name;
  made.version = made.calls.version;
  part = std::move(made);
  return {};
}

}  // namespace

Result<std::shared_ptr<const Adaptor>> check(const hetcclAdaptorTable* given,
                                             const std::string& path, const Names& taken) {
  if (given == nullptr) {
    return refuse(path, format("it does not serve ABI %d of adaptors", HETCCL_ADAPTOR_ABI));
  }
  if (!has_size(*given)) return refuse(path, kNoSize);
  const hetcclAdaptorTable table = as_compiled(given);
  if (table.abi != HETCCL_ADAPTOR_ABI) {
    return refuse(path,
                  format("it was compiled for ABI %u of adaptors, this hetccl has %d: compile "
                         "it with this hetccl's hetccl/adaptor.h",
                         table.abi, HETCCL_ADAPTOR_ABI));
  }
  auto adaptor = std::make_shared<Adaptor>();
  adaptor->path = path;
  HETCCL_TRY(take_part(table.library, check_library, taken, path, adaptor->library));
  HETCCL_TRY(take_part(table.device, check_device, taken, path, adaptor->device));
  HETCCL_TRY(take_part(table.transport, check_transport, taken, path, adaptor->transport));
  if (!adaptor->library && !adaptor->device && !adaptor->transport)
    return refuse(path, "its table is empty");
  return std::shared_ptr<const Adaptor>(adaptor);
}

Result<std::shared_ptr<const Adaptor>> load(const std::string& path, const Names& taken) {
  const std::string names[] = {path};
  auto opened = DynLib::open(names);
  if (!opened.ok()) return refuse(path, opened.status().message());
  const DynLib& library = keep(std::move(opened).value());
  const auto entry = reinterpret_cast<hetcclAdaptorEntry>(library.symbol(HETCCL_ADAPTOR_ENTRY));
  if (entry == nullptr) return refuse(path, "it exports no " HETCCL_ADAPTOR_ENTRY);
  try {
    return check(entry(HETCCL_ADAPTOR_ABI), path, taken);
  } catch (...) {
    return refuse(path, "an exception has left its entry");
  }
}

std::vector<Found> find(const std::string& paths, const Names& taken) {
  std::vector<Found> found;
  std::istringstream text(paths);
  for (std::string path; std::getline(text, path, ':');)
    if (!path.empty()) found.push_back({path, load(path, taken)});
  return found;
}

}  // namespace hetccl::adaptor
