#include "device_streams.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <tuple>

#include "process_end.h"

namespace hetccl::torch_backend {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kSpin(50);
constexpr std::chrono::microseconds kShortestSleep(20);
constexpr std::chrono::microseconds kLongestSleep(1000);

/// While it lives, this thread's device calls do not affect a graph that another thread may be
/// recording. The driver would otherwise invalidate that graph.
class ApartFromGraphs {
 public:
  ApartFromGraphs() { exchange(); }
  ~ApartFromGraphs() { exchange(); }
  ApartFromGraphs(const ApartFromGraphs&) = delete;
  ApartFromGraphs& operator=(const ApartFromGraphs&) = delete;

 private:
  using Exchange = int (*)(int* mode);
  void exchange() {
    // A process with a GPU has loaded NVIDIA's driver or AMD's runtime. Both number the modes
    // alike.
    static const auto call = []() -> Exchange {
      for (const auto& [library, name] :
           {std::pair{"libcuda.so.1", "cuThreadExchangeStreamCaptureMode"},
            std::pair{"libamdhip64.so.7", "hipThreadExchangeStreamCaptureMode"},
            std::pair{"libamdhip64.so.6", "hipThreadExchangeStreamCaptureMode"}}) {
        void* loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
        if (loaded != nullptr) return reinterpret_cast<Exchange>(dlsym(loaded, name));
      }
      return nullptr;
    }();
    if (call != nullptr) call(&mode_);
  }
  int mode_ = 2;  // relaxed
};

}  // namespace

c10::DeviceIndex device_count(c10::DeviceType type) {
  if (!c10::impl::hasDeviceGuardImpl(type)) return 0;
  return c10::impl::getDeviceGuardImpl(type)->deviceCount();
}

c10::Device current_device(c10::DeviceType type) {
  return c10::impl::getDeviceGuardImpl(type)->getDevice();
}

std::string name_of(c10::Device device) {
  if (device.is_cpu()) return "host";
  // torch for AMD calls its GPUs "cuda" too.
  const bool is_amd = device.is_cuda() && at::detail::getCUDAHooks().hasROCM();
  return is_amd ? c10::str("hip:", static_cast<int>(device.index())) : device.str();
}

bool uses_current_device(c10::DeviceType type) {
  if (type != c10::kCUDA || device_count(type) == 0) return false;
  try {
    return at::detail::getCUDAHooks().hasPrimaryContext(current_device(type).index());
  } catch (const std::exception&) {
    return false;  // torch has not looked for a device yet
  }
}

bool poll_until(const std::function<bool()>& done, std::chrono::milliseconds timeout) {
  const auto start = Clock::now();
  auto sleep = kShortestSleep;
  while (!done()) {
    const auto passed = Clock::now() - start;
    if (timeout.count() >= 0 && passed >= timeout) return done();
    if (passed < kSpin) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kLongestSleep);
  }
  return true;
}

Events::Events(c10::Device device) : device_(device), owner_(getpid()) {}

Events::~Events() {
  if (getpid() != owner_) {  // a forked child cannot use the device
    std::ignore = new std::vector<c10::Event>(std::move(idle_));
    return;
  }
  try {
    // Without the guard, freeing an event would create a context on this thread's current device.
    const c10::DeviceGuard guard(device_);
    const ApartFromGraphs apart;
    idle_.clear();
  } catch (const std::exception&) {
    idle_.clear();
  }
}

c10::Event Events::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return c10::Event(device_.type());
  c10::Event event = std::move(idle_.back());
  idle_.pop_back();
  return event;
}

void Events::give_back(c10::Event event) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(event));
  } catch (const std::bad_alloc&) {
    // The event is freed.
  }
}

Mark::Mark(std::shared_ptr<Events> events, const c10::Stream& stream)
    : events_(std::move(events)), event_(events_->take()), owner_(getpid()) {
  event_.record(stream);
}

// A forked child cannot use the device, and may have inherited a locked mutex.
Mark::~Mark() {
  if (getpid() == owner_) {
    events_->give_back(std::move(event_));
  } else {
    std::ignore = new c10::Event(std::move(event_));
  }
}

bool Mark::reached() const noexcept {
  if (getpid() != owner_) return true;
  try {
    const ApartFromGraphs apart;
    return event_.query();
  } catch (const std::exception&) {
    failed_.store(true, std::memory_order_release);
    return true;
  }
}

void Mark::block(const c10::Stream& stream) const {
  event_.block(stream);
}

bool all_reached(const Marks& marks) {
  return std::all_of(marks.begin(), marks.end(), [](const auto& mark) { return mark->reached(); });
}

bool any_failed(const Marks& marks) {
  return std::any_of(marks.begin(), marks.end(), [](const auto& mark) { return mark->failed(); });
}

void await_in_background(const Marks& marks, c10::Device device) {
  try {
    const BeforeProcessEnd alive;
    // Without this, a query would create a context on this thread's current device. The device
    // stays current, because a guard's destructor, which must not fail, might run after the driver
    // has ended.
    c10::impl::getDeviceGuardImpl(device.type())->setDevice(device);
  } catch (const std::exception&) {
    // The device has failed; the marks will report it.
  }
  std::ignore = poll_until(
      [&] {
        const BeforeProcessEnd alive;
        return all_reached(marks);
      },
      kForever);
}

DeviceStreams::DeviceStreams(c10::Device device)
    : device_(device), impl_(device.type()), events_(std::make_shared<Events>(device)) {
  prepare_for_process_end();
}

c10::Stream DeviceStreams::of(const OrderKey& order) {
  const std::lock_guard lock(mutex_);
  if (order.kind == OrderKey::Kind::Several) return of_several();
  const auto known = streams_.find(order);
  if (known != streams_.end()) return known->second;
  return streams_.emplace(order, another()).first->second;
}

c10::Stream DeviceStreams::of_several() {
  for (const c10::Stream& stream : several_) {
    const auto last = last_.find(stream.id());
    if (last == last_.end() || last->second->reached()) return stream;
  }
  if (several_.size() < kMostOfSeveral) several_.push_back(another());
  return several_.back();
}

std::shared_ptr<const Mark> DeviceStreams::mark(const c10::Stream& stream) {
  return std::make_shared<const Mark>(events_, stream);
}

void DeviceStreams::note(const c10::Stream& stream, std::shared_ptr<const Mark> mark) {
  const std::lock_guard lock(mutex_);
  last_[stream.id()].swap(mark);
}

bool DeviceStreams::drain(std::chrono::milliseconds timeout) {
  Marks last;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, mark] : last_) last.push_back(mark);
  }
  return poll_until([&] { return all_reached(last); }, timeout);
}

}  // namespace hetccl::torch_backend
