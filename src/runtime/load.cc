#include "runtime/load.h"

#include <pthread.h>

#include <algorithm>
#include <forward_list>
#include <mutex>
#include <new>
#include <vector>

#include "base/joined.h"

namespace hetccl::runtime {
namespace {

struct Platform {
  std::string_view name, title;
  std::string_view library;  // prefix of its file names
  std::vector<std::string> usual_names;
  Result<std::unique_ptr<Table>> (*make)(DynLib, const OwnEntries&);
};

const std::array<Platform, 2>& platforms() {
  static const auto* const all = new std::array<Platform, 2>{
      Platform{"cuda",
               "CUDA",
               "libcudart.so",
               {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so",
                "/usr/local/cuda/lib64/libcudart.so"},
               make_table<Cuda>},
      Platform{"hip",
               "HIP",
               "libamdhip64.so",
               {"libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"},
               make_table<Hip>}};
  return *all;
}

// Tables that were handed out are never freed: their holders may call them until the process ends.
// The state under `mutex` is consistent at every moment, in case another thread forks while it is
// held.
struct Process {
  std::mutex mutex;
  std::array<std::unique_ptr<Table>, 2> tables;  // as platforms()
  std::array<bool, 2> handed_out{};
  /// Paths that `open` has loaded. They stay loaded, and are not the program's choice.
  std::array<std::forward_list<std::string>, 2> loaded_here;
};

Process& process();

// Resets the mutex in a forked child, which lacks the thread that may have held it. A fork cannot
// wait for the mutex: a driver being loaded may have fork handlers, and locks, of its own.
void free_mutex() {
  new (&process().mutex) std::mutex;
}

Process& process() {
  static auto* const instance = [] {
    auto* const made = new Process;
    pthread_atfork(nullptr, nullptr, free_mutex);
    return made;
  }();
  return *instance;
}

bool contains(const auto& paths, const std::string& path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

/// Returns the platform's libraries that the program has loaded. Requires the lock.
std::vector<std::string> loaded_by_program(size_t index) {
  const auto& ours = process().loaded_here.at(index);
  std::vector<std::string> paths = loaded_libraries(platforms().at(index).library);
  std::erase_if(paths, [&](const std::string& path) { return contains(ours, path); });
  return paths;
}

/// Requires the lock.
std::vector<std::string> names_of(size_t index, const std::string& path) {
  if (!path.empty()) return {path};
  const Platform& platform = platforms().at(index);
  std::vector<std::string> names = loaded_by_program(index);
  names.insert(names.end(), platform.usual_names.begin(), platform.usual_names.end());
  return names;
}

/// Requires the lock.
Result<const hetcclRuntime*> open(size_t index, const Request& request, const OwnEntries& own) {
  const Platform& platform = platforms().at(index);
  std::unique_ptr<Table>& table = process().tables.at(index);
  if (table != nullptr) {
    const std::string& path = table->library.path();
    const std::string wanted(request.path);
    if (wanted.empty() || table->library.is_called(wanted)) return &table->entries;
    return error(ErrorCode::InvalidUsage,
                 "this process uses the %s runtime %s already, and cannot use %s beside it",
                 platform.title.data(), path.c_str(), wanted.c_str());
  }
  const bool hip = platform.make == make_table<Hip>;
  const std::string_view path = request.path.empty() && hip ? request.hip_library : request.path;
  const std::vector<std::string> before = loaded_libraries(platform.library);
  auto library = DynLib::open(names_of(index, std::string(path)));
  if (!library.ok()) {
    return error(ErrorCode::Unsupported, "no %s runtime: %s", platform.title.data(),
                 library.status().message().c_str());
  }
  auto& ours = process().loaded_here.at(index);
  if (!contains(before, library->path()) && !contains(ours, library->path())) {
    ours.push_front(library->path());
  }
  auto made = platform.make(std::move(*library), own);
  if (!made.ok()) return made.status().with(format("the %s runtime", platform.title.data()));
  table = std::move(*made);
  return &table->entries;
}

Candidate candidate(size_t index, const Request& request, const OwnEntries& own) {
  const Platform& platform = platforms().at(index);
  const bool loaded = process().tables.at(index) != nullptr || !loaded_by_program(index).empty();
  return {platform.title, loaded, [=] { return open(index, request, own); }};
}

/// Returns ok if the runtime shows a device.
Status check_device(const hetcclRuntime& table) {
  int devices = 0;
  const auto failure = table.get_device_count(&devices);
  if (failure == hetcclRuntimeSuccess && devices > 0) return {};
  const char* reason = "it shows no device";
  if (failure != hetcclRuntimeSuccess) {
    reason = table.get_error_string(failure);
    table.get_last_error();  // clear hetccl's own error, which the program would take for its own
  }
  return error(ErrorCode::Unsupported, "%s: %s", table.path, reason);
}

}  // namespace

Result<const hetcclRuntime*> choose(std::span<const Candidate> candidates) {
  std::vector<std::string> reasons;
  for (const bool loaded : {true, false}) {
    for (const Candidate& one : candidates) {
      if (one.loaded != loaded) continue;
      const auto table = one.load();
      const Status status = table.ok() ? check_device(*table.value()) : table.status();
      if (status.ok()) return table.value();
      reasons.push_back(std::string(one.title) + ": " + status.message());
    }
  }
  return error(ErrorCode::Unsupported, "no runtime shows a device: %s", joined(reasons).c_str());
}

namespace {

/// Keeps `table` for good, and drops tables that were only tried. Their libraries stay loaded,
/// because a runtime's own threads continue. Requires the lock.
void keep_only(const hetcclRuntime* table) {
  for (size_t i = 0; i < process().tables.size(); ++i) {
    std::unique_ptr<Table>& one = process().tables.at(i);
    if (one == nullptr) continue;
    bool& handed_out = process().handed_out.at(i);
    handed_out |= &one->entries == table;
    if (!handed_out) one.reset();
  }
}

/// Requires the lock.
Result<const hetcclRuntime*> find_wanted(const Request& request, const OwnEntries& own) {
  for (size_t i = 0; i < platforms().size(); ++i) {
    if (platforms().at(i).name == request.platform) return open(i, request, own);
  }
  if (!request.platform.empty()) {
    return error(ErrorCode::InvalidArgument, "the platform \"%.80s\" is neither cuda nor hip",
                 std::string(request.platform).c_str());
  }
  if (!request.path.empty()) {
    return error(ErrorCode::InvalidArgument, "a library's path needs a platform: cuda or hip");
  }
  const std::array candidates = {candidate(0, request, own), candidate(1, request, own)};
  return choose(candidates);
}

}  // namespace

Result<const hetcclRuntime*> load(const Request& request, const OwnEntries& own) {
  std::lock_guard lock(process().mutex);
  auto found = find_wanted(request, own);
  keep_only(found.ok() ? found.value() : nullptr);
  return found;
}

unsigned available(std::string_view hip_library, const OwnEntries& own) {
  const Request request{{}, {}, hip_library};
  std::lock_guard lock(process().mutex);
  unsigned found = 0;
  for (size_t i = 0; i < platforms().size(); ++i) {
    auto table = open(i, request, own);
    if (table.ok() && check_device(**table).ok())
      found |= 1U << static_cast<unsigned>((*table)->platform);
  }
  keep_only(nullptr);
  return found;
}

const Table* find(const hetcclRuntime* table) {
  std::lock_guard lock(process().mutex);
  for (const auto& one : process().tables) {
    if (one != nullptr && &one->entries == table) return one.get();
  }
  return nullptr;
}

}  // namespace hetccl::runtime
