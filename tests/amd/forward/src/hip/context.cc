#include "hip/context.h"

#include <map>
#include <mutex>

#include "hip/errors.h"
#include "hip/noncoherent.h"

namespace forward {
namespace {

thread_local int thread_device = 0;

struct Contexts {
  std::mutex mutex;
  std::map<int, cuda::Handle> by_device;
};

Contexts& contexts() {
  static Contexts* instance = new Contexts;
  return *instance;
}

const cuda::Driver* initialize() {
  const cuda::Driver* driver = cuda::driver();
  if (driver == nullptr || driver->init(0) != 0) return nullptr;
  return driver;
}

}  // namespace

const cuda::Driver* initialized_driver() {
  static const cuda::Driver* driver = initialize();
  return driver;
}

int current_device() {
  return thread_device;
}

int device_count(const cuda::Driver& driver) {
  int count = 0;
  return driver.device_get_count(&count) == 0 ? count : 0;
}

hipError_t set_device(const cuda::Driver& driver, int device) {
  if (device < 0 || device >= device_count(driver)) return hipErrorInvalidDevice;
  thread_device = device;
  return make_current(driver);
}

hipError_t primary_context(const cuda::Driver& driver, int device, cuda::Handle* context) {
  Contexts& state = contexts();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto known = state.by_device.find(device);
  if (known != state.by_device.end()) {
    *context = known->second;
    return hipSuccess;
  }
  if (device < 0 || device >= device_count(driver)) return hipErrorInvalidDevice;
  const int code = driver.primary_retain(context, device);
  if (code == 0) state.by_device[device] = *context;
  return from_cuda(code);
}

hipError_t reset_device(const cuda::Driver& driver) {
  Contexts& state = contexts();
  const std::lock_guard<std::mutex> lock(state.mutex);
  // The old handle must not stay current: the driver may give the new context the same handle.
  (void)driver.ctx_set_current(nullptr);
  forget_noncoherent();
  const auto slot = state.by_device.find(thread_device);
  if (slot != state.by_device.end()) {
    (void)driver.primary_release(thread_device);
    state.by_device.erase(slot);
  }
  return from_cuda(driver.primary_reset(thread_device));
}

hipError_t make_current(const cuda::Driver& driver) {
  cuda::Handle wanted = nullptr;
  const hipError_t error = primary_context(driver, thread_device, &wanted);
  if (error != hipSuccess) return error;
  cuda::Handle current = nullptr;
  const int code = driver.ctx_get_current(&current);
  if (code != 0) return from_cuda(code);
  return current == wanted ? hipSuccess : from_cuda(driver.ctx_set_current(wanted));
}

}  // namespace forward
