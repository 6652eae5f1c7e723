#include "base/dynlib.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <utility>

#include "base/joined.h"

namespace hetccl {

namespace {

std::string path_of(void* handle, const std::string& name) {
  link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name;
  return known && *map->l_name ? std::string(map->l_name) : name;
}

// Returns whether a path exists and is no regular file: dlopen would wait at a FIFO for ever.
bool is_special(const std::string& name) {
  struct stat info{};
  const bool path = name.find('/') != std::string::npos;
  return path && ::stat(name.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

}  // namespace

std::vector<std::string> loaded_libraries(std::string_view name) {
  struct Search {
    std::string_view name;
    std::vector<std::string> found;
  } search{name, {}};
  const auto look = [](dl_phdr_info* info, size_t, void* data) {
    auto& here = *static_cast<Search*>(data);
    const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    if (path.substr(path.rfind('/') + 1).starts_with(here.name)) here.found.emplace_back(path);
    return 0;
  };
  dl_iterate_phdr(look, &search);
  return search.found;
}

uint64_t count_library_loads() {
  uint64_t count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* place) {
        *static_cast<uint64_t*>(place) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

std::string library_of(const void* address) {
  Dl_info info{};
  void* map = nullptr;
  const bool known = dladdr1(address, &info, &map, RTLD_DL_LINKMAP) != 0 && map != nullptr;
  return known ? static_cast<const link_map*>(map)->l_name : "";
}

void* global_symbol(const char* name) {
  return dlsym(RTLD_DEFAULT, name);
}

// Makes two passes: prefers a loaded copy under the second name to loading the first, because two
// copies of one vendor library in a process do not share state.
Result<DynLib> DynLib::open(std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (is_special(name)) continue;
    if (void* handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD)) {
      return DynLib(handle, path_of(handle, name));
    }
  }
  std::vector<std::string> reasons;
  for (const std::string& name : names) {
    if (is_special(name)) {
      reasons.push_back(name + ": no regular file");
      continue;
    }
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return DynLib(handle, path_of(handle, name));
    }
    const char* reason = dlerror();
    reasons.emplace_back(reason ? reason : name.c_str());
  }
  return error(ErrorCode::SystemError, "no library found: %s",
               reasons.empty() ? "no name was given" : joined(reasons).c_str());
}

DynLib::DynLib(DynLib&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      path_(std::move(other.path_)),
      stays_loaded_(other.stays_loaded_) {}

DynLib& DynLib::operator=(DynLib&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(path_, other.path_);
  std::swap(stays_loaded_, other.stays_loaded_);
  return *this;
}

DynLib::~DynLib() {
  if (handle_ && !stays_loaded_) dlclose(handle_);
}

// A library's handle is the same for all names that it was opened by.
bool DynLib::is_called(const std::string& name) const {
  if (handle_ == nullptr || is_special(name)) return false;
  void* const found = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (found != nullptr) dlclose(found);
  return found == handle_;
}

void* DynLib::symbol(const char* name) const {
  return handle_ ? dlsym(handle_, name) : nullptr;
}

}  // namespace hetccl
