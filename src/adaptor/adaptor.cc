#include "adaptor/adaptor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/dynlib.h"

namespace hetccl::adaptor {
namespace {

constexpr const char* kNoSize = "a table's size is 0: set it to the struct's sizeof";
constexpr size_t kLongestName = 31, kLongestVersion = 63, kLongestWireVersion = 31;
constexpr std::array<std::string_view, 5> kTakenNames = {"host", "nccl", "rccl", "tcp", "shm"};
constexpr uint32_t kCapabilities = HETCCL_LIBRARY_JOINS_HOSTS | HETCCL_LIBRARY_JOINS_ARCHITECTURES |
                                   HETCCL_LIBRARY_EXCHANGES | HETCCL_LIBRARY_SENDS;
constexpr uint32_t kTransportCapabilities =
    HETCCL_TRANSPORT_ENCRYPTS | HETCCL_TRANSPORT_JOINS_HOSTS;

// What an adaptor that was compiled with a shorter struct has.
template <typename Table>
Table as_compiled(const Table* table) {
  Table whole{};
  std::memcpy(&whole, table, std::min(table->size, sizeof whole));
  return whole;
}

bool is_name(const char* text) {
  if (text == nullptr) return false;
  const std::string_view name(text, strnlen(text, kLongestName + 1));
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), good) &&
         std::find(kTakenNames.begin(), kTakenNames.end(), name) == kTakenNames.end();
}

// It becomes part of the transport's name.
bool is_wire_version(const char* text) {
  if (text == nullptr) return false;
  const std::string_view version(text, strnlen(text, kLongestWireVersion + 1));
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  return !version.empty() && version.size() <= kLongestWireVersion &&
         std::all_of(version.begin(), version.end(), good);
}

bool is_version(const char* text) {
  if (text == nullptr) return false;
  const std::string_view version(text, strnlen(text, kLongestVersion + 1));
  const auto good = [](char c) { return c >= 0x20 && c < 0x7f; };
  return !version.empty() && version.size() <= kLongestVersion &&
         std::all_of(version.begin(), version.end(), good);
}

// Empty, or why the part's name or version is none.
std::string check_words(const char* name, const char* version) {
  if (!is_name(name)) return "its name is not 1 to 31 of a-z, 0-9 and _, or is one of hetccl's";
  return is_version(version) ? "" : "its version is not 1 to 63 printable characters";
}

const char* absent_call(const hetcclLibraryAdaptor& library) {
  const std::pair<bool, const char*> calls[] = {{library.error_text != nullptr, "error_text"},
                                                {library.score != nullptr, "score"},
                                                {library.reduces != nullptr, "reduces"},
                                                {library.make_id != nullptr, "make_id"},
                                                {library.init != nullptr, "init"},
                                                {library.start != nullptr, "start"},
                                                {library.test != nullptr, "test"},
                                                {library.destroy != nullptr, "destroy"}};
  for (const auto& [there, name] : calls)
    if (!there) return name;
  return nullptr;
}

const char* absent_call(const hetcclTransportAdaptor& transport) {
  const std::pair<bool, const char*> calls[] = {{transport.error_text != nullptr, "error_text"},
                                                {transport.score != nullptr, "score"},
                                                {transport.open != nullptr, "open"},
                                                {transport.connect != nullptr, "connect"},
                                                {transport.send != nullptr, "send"},
                                                {transport.receive != nullptr, "receive"},
                                                {transport.completed != nullptr, "completed"},
                                                {transport.progress != nullptr, "progress"},
                                                {transport.poll_fd != nullptr, "poll_fd"},
                                                {transport.close != nullptr, "close"},
                                                {transport.destroy != nullptr, "destroy"}};
  for (const auto& [there, name] : calls)
    if (!there) return name;
  return nullptr;
}

Status refuse(const std::string& path, const std::string& reason) {
  return error(Code::Unsupported, "the adaptor %s is refused: %s", path.c_str(), reason.c_str());
}

// Adaptors' threads, and those of what they use, may outlive hetccl: nothing is unloaded.
const DynLib& keep(DynLib library) {
  static std::mutex mutex;
  static auto* const kept = new std::list<DynLib>;
  const std::lock_guard lock(mutex);
  return kept->emplace_back(std::move(library));
}

template <typename Calls>
Result<Part<Calls>> check_part(const Calls* given, uint32_t known, const std::string& path) {
  if (given->size == 0) return refuse(path, kNoSize);
  Part<Calls> part{as_compiled(given), "", ""};
  const Calls& calls = part.calls;
  if (const std::string wrong = check_words(calls.name, calls.version); !wrong.empty())
    return refuse(path, wrong);
  if (const char* absent = absent_call(calls); absent != nullptr)
    return refuse(path, format("its table lacks %s", absent));
  if ((calls.capabilities & ~known) != 0) {
    return refuse(path, format("it declares capabilities 0x%x that this hetccl does not know",
                               calls.capabilities & ~known));
  }
  part.name = calls.name;
  part.version = calls.version;
  return part;
}

}  // namespace

Result<std::shared_ptr<const Adaptor>> check(const hetcclAdaptorTable* given,
                                             const std::string& path) {
  if (given == nullptr) {
    return refuse(path, format("it does not serve ABI %d of adaptors", HETCCL_ADAPTOR_ABI));
  }
  if (given->size == 0) return refuse(path, kNoSize);
  const hetcclAdaptorTable table = as_compiled(given);
  if (table.abi != HETCCL_ADAPTOR_ABI) {
    return refuse(path,
                  format("it was compiled for ABI %u of adaptors, this hetccl has %d: compile "
                         "it with this hetccl's hetccl/adaptor.h",
                         table.abi, HETCCL_ADAPTOR_ABI));
  }
  auto adaptor = std::make_shared<Adaptor>();
  adaptor->path = path;
  if (table.library == nullptr && table.transport == nullptr)
    return refuse(path, "its table has no part that this hetccl knows");
  if (table.library != nullptr) {
    HETCCL_ASSIGN(adaptor->library, check_part(table.library, kCapabilities, path));
  }
  if (table.transport != nullptr) {
    HETCCL_ASSIGN(adaptor->transport, check_part(table.transport, kTransportCapabilities, path));
    if (!is_wire_version(table.transport->version))
      return refuse(path, "its transport's version is not 1 to 31 of a-z, 0-9, _ and .");
  }
  return std::shared_ptr<const Adaptor>(adaptor);
}

Result<std::shared_ptr<const Adaptor>> load(const std::string& path) {
  const std::string names[] = {path};
  auto opened = DynLib::open(names);
  if (!opened.ok()) return refuse(path, opened.status().message());
  const DynLib& library = keep(std::move(opened).value());
  const auto entry = reinterpret_cast<hetcclAdaptorEntry>(library.symbol(HETCCL_ADAPTOR_ENTRY));
  if (entry == nullptr) return refuse(path, "it exports no " HETCCL_ADAPTOR_ENTRY);
  return check(entry(HETCCL_ADAPTOR_ABI), path);
}

std::vector<Found> find(const std::string& paths) {
  std::vector<Found> found;
  std::istringstream text(paths);
  for (std::string path; std::getline(text, path, ':');)
    if (!path.empty()) found.push_back({path, load(path)});
  return found;
}

}  // namespace hetccl::adaptor
