#include "comm/workspace.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace hetccl::comm {
namespace {

class DeviceWorkspace : public ccl::Workspace {
 public:
  explicit DeviceWorkspace(std::shared_ptr<device::GpuDevice> device)
      : device_(std::move(device)) {}

  void make_current() override { device_->make_current(); }
  Result<void*> allocate(size_t bytes) override { return device_->allocate(bytes); }
  void free(void* memory) override { device_->free(memory); }
  Result<void*> acquire_stream() override {
    HETCCL_ASSIGN(auto stream, device_->create_stream());
    void* native = stream->native();
    std::lock_guard lock(mutex_);
    streams_[native] = std::move(stream);
    return native;
  }
  void release_stream(void* stream) override {
    std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  [[nodiscard]] std::string architecture() const override { return device_->architecture(); }
  bool drain(void* stream, const std::function<bool()>& give_up) override;

 private:
  const std::shared_ptr<device::GpuDevice> device_;
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<device::Stream>> streams_;
};

// Whether the stream can still be asked is the vendor's to say: a flag shows it in any case. Its
// memory outlives a wait that is given up, for the stream may write it yet.
bool DeviceWorkspace::drain(void* stream, const std::function<bool()>& give_up) {
  auto memory = device_->allocate_pinned(sizeof(device::Flag));
  auto wrapped = device_->wrap_stream(stream);
  if (!memory.ok() || !wrapped.ok()) return false;
  auto& flag = *static_cast<device::Flag*>(memory.value());
  bool drained = device_->write_flag(*wrapped.value(), flag, 1).ok();
  while (drained && !flag.reached(1)) {
    if (give_up()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  device_->free_pinned(memory.value());
  return drained;
}

}  // namespace

std::shared_ptr<ccl::Workspace> make_workspace(std::shared_ptr<device::GpuDevice> device) {
  return std::make_shared<DeviceWorkspace>(std::move(device));
}

}  // namespace hetccl::comm
