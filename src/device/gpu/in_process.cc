#include "device/gpu/in_process.h"

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "base/dynlib.h"
#include "device/gpu/cuda_pointers.h"

namespace hetccl::device::gpu {
namespace {

// The calls into a driver; empty if it lacks one of them, or is unknown.
struct Questions {
  std::function<int(int* device)> current_device;  // not 0: there is none
  MemoryOwner memory_owner;
};

// Calls the process's own copy of a library. It is searched again after more libraries have been
// loaded; once found, it stays loaded.
class LoadedDriver : public InProcess {
 public:
  using Bind = std::function<Questions(const DynLib&)>;
  LoadedDriver(const char* library, Bind bind) : library_(library), bind_(std::move(bind)) {}

  [[nodiscard]] bool is_possible() override { return true; }
  [[nodiscard]] bool is_loaded() override { return find() != nullptr; }
  [[nodiscard]] int current_device() override {
    const Questions* const asked = find();
    int device = -1;
    return asked != nullptr && asked->current_device && asked->current_device(&device) == 0 ? device
                                                                                            : -1;
  }
  [[nodiscard]] Owner owner_of(const void* address) override {
    const Questions* const asked = find();
    Owner owner;
    if (asked == nullptr || asked->memory_owner(address, &owner.device, &owner.managed) != 0)
      return {};
    return owner;
  }

 private:
  const Questions* find() {
    if (const Questions* found = found_.load(std::memory_order_acquire)) return found;
    const uint64_t loads = count_library_loads();
    if (looked_.load(std::memory_order_acquire) == loads) return found_.load();
    const std::lock_guard lock(mutex_);
    for (const std::string& path : loaded_libraries(library_)) {
      if (found_.load() != nullptr) break;
      auto opened = DynLib::open(std::span(&path, 1));
      if (!opened.ok()) continue;
      auto made = std::make_unique<Questions>(bind_(*opened));
      if (!made->memory_owner) continue;
      opened->stay_loaded();
      made_ = std::move(made);
      found_.store(made_.get(), std::memory_order_release);
    }
    looked_.store(loads, std::memory_order_release);  // store last: other threads rely on it
    return found_.load();
  }

  const char* const library_;
  const Bind bind_;
  std::atomic<const Questions*> found_{nullptr};
  std::atomic<uint64_t> looked_{0};
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<Questions> made_;
};

// Returns whether the process has the file open.
bool has_open(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return false;
  std::array<char, 256> target{};
  while (const dirent* const entry = readdir(folder.get())) {
    const ssize_t length =
        readlinkat(dirfd(folder.get()), entry->d_name, target.data(), target.size());
    if (length > 0 && std::string_view(target.data(), static_cast<size_t>(length)) == path)
      return true;
  }
  return false;
}

// How long a "not open" answer for the driver's file stays valid. HIP takes tens of milliseconds
// from opening it to its first allocation.
constexpr Duration kUnused = std::chrono::milliseconds(1);

// Returns whether the library is of ROCm before 6: libamdhip64.so.5 numbers kinds of memory
// differently. Asking for its version might initialise it.
bool is_too_old(const std::string& path) {
  const size_t at = path.find(".so.");
  const int major = at == std::string::npos ? 0 : std::atoi(path.c_str() + at + 4);
  return major > 0 && major < 6;
}

// Does not call HIP before the process has, because its calls initialise it.
class HipDriver : public LoadedDriver {
 public:
  HipDriver(std::string kfd, const Clock& clock, Bind bind)
      : LoadedDriver("libamdhip64.so", std::move(bind)),
        kfd_(std::move(kfd)),
        possible_(kfd_.empty() || access(kfd_.c_str(), F_OK) == 0),
        clock_(clock),
        used_(kfd_.empty()) {}
  [[nodiscard]] bool is_possible() override { return possible_; }
  [[nodiscard]] int current_device() override {
    return is_used() ? LoadedDriver::current_device() : -1;
  }
  [[nodiscard]] Owner owner_of(const void* address) override {
    return is_used() ? LoadedDriver::owner_of(address) : Owner();
  }

 private:
  bool is_used() {
    if (used_.load(std::memory_order_relaxed)) return true;
    if (!possible_ || !is_loaded()) return false;
    const TimePoint now = clock_.now();
    if (now < unused_until_.load(std::memory_order_relaxed)) return false;
    const bool used = has_open(kfd_);
    used_.store(used, std::memory_order_relaxed);
    unused_until_.store(clock_.now() + kUnused, std::memory_order_relaxed);
    return used;
  }

  const std::string kfd_;
  const bool possible_;
  const Clock& clock_;
  std::atomic<bool> used_;
  std::atomic<TimePoint> unused_until_{TimePoint()};
};

}  // namespace

std::shared_ptr<InProcess> cuda_in_process() {
  return std::make_shared<LoadedDriver>("libcuda.so", [](const DynLib& library) {
    std::function<int(void**)> context;
    std::function<int(int*)> device;
    int (*attributes)(unsigned, const int*, void**, uint64_t) = nullptr;
    Symbols symbols(library);
    symbols.find(context, "cuCtxGetCurrent");
    symbols.find(device, "cuCtxGetDevice");
    symbols.find(attributes, "cuPointerGetAttributes");
    if (!symbols.missing().empty()) return Questions();
    const auto current = [context, device](int* number) {
      void* of_thread = nullptr;
      const int code = context(&of_thread);
      return code == 0 && of_thread != nullptr ? device(number) : -1;
    };
    return Questions{current, memory_owner_by(attributes)};
  });
}

std::shared_ptr<InProcess> hip_in_process(std::string kfd, const Clock& clock) {
  return std::make_shared<HipDriver>(std::move(kfd), clock, [](const DynLib& library) {
    std::function<int(int*)> device;
    int (*attributes)(hip::PointerAttributes*, const void*) = nullptr;
    int (*peek)() = nullptr;
    int (*take)() = nullptr;
    Symbols symbols(library);
    symbols.find(device, "hipGetDevice");
    symbols.find(attributes, "hipPointerGetAttributes");
    symbols.find(peek, "hipPeekAtLastError");
    symbols.find(take, "hipGetLastError");
    if (!symbols.missing().empty() || is_too_old(library.path())) return Questions();
    return Questions{device, memory_owner_by(attributes, peek, take)};
  });
}

// For unknown memory HIP records an error, which the user's code would take for its own; clear it.
MemoryOwner memory_owner_by(int (*call)(hip::PointerAttributes*, const void*), int (*peek)(),
                            int (*take)()) {
  return [=](const void* address, int* device, bool* managed) {
    const bool clean = peek() == 0;
    hip::PointerAttributes attributes;
    const int code = call(&attributes, address);
    if (code != 0 && clean) take();
    const bool known = code == 0;
    *managed = known && (attributes.managed != 0 || attributes.type == hip::kManaged);
    *device = known && (attributes.type == hip::kDevice || *managed) ? attributes.device : -1;
    return code == hip::kInvalidValue ? 0 : code;
  };
}

}  // namespace hetccl::device::gpu
