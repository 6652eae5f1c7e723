#include "transport/verbs/device.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace hetccl::transport::verbs {

bool is_ipv4(const abi::Gid& gid) {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

bool is_link_local(const abi::Gid& gid) {
  if (is_ipv4(gid)) return gid.raw[12] == 169 && gid.raw[13] == 254;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

Region::Region(std::shared_ptr<const Device> device, abi::Mr* mr)
    : device_(std::move(device)), mr_(mr) {}

Region::Region(Region&& other) noexcept
    : device_(std::move(other.device_)), mr_(std::exchange(other.mr_, nullptr)) {}

Region& Region::operator=(Region&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::move(other.device_);
  mr_ = std::exchange(other.mr_, nullptr);
  return *this;
}

Region::~Region() {
  reset();
}

void Region::reset() {
  if (mr_ != nullptr) device_->api().dereg_mr(std::exchange(mr_, nullptr));
  device_.reset();
}

Result<std::shared_ptr<Device>> Device::open(std::shared_ptr<const Api> api, abi::Device* device) {
  errno = 0;
  abi::Context* context = api->open_device(device);
  if (context == nullptr)
    return system_error(format("opening %s", device->name), errno != 0 ? errno : ENODEV);
  std::shared_ptr<Device> made(new Device(std::move(api), device->name, context));
  HETCCL_TRY(made->prepare());
  return made;
}

Device::Device(std::shared_ptr<const Api> api, std::string name, abi::Context* context)
    : api_(std::move(api)), name_(std::move(name)), context_(context) {}

Status Device::prepare() {
  errno = 0;
  pd_ = api_->alloc_pd(context_);
  if (pd_ != nullptr) events_ = api_->create_comp_channel(context_);
  if (events_ == nullptr)
    return system_error(format("preparing %s", name_.c_str()), errno != 0 ? errno : ENOMEM);
  for (const int fd : {events_->fd, context_->async_fd}) {
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
      return system_error(format("preparing %s", name_.c_str()), errno);
  }
  return {};
}

Device::~Device() {
  if (events_ != nullptr) api_->destroy_comp_channel(events_);
  if (pd_ != nullptr) api_->dealloc_pd(pd_);
  api_->close_device(context_);
}

Result<Region> Device::register_memory(void* data, size_t bytes, unsigned access,
                                       bool* again) const {
  errno = 0;
  abi::Mr* mr = api_->reg_mr(pd_, data, bytes, static_cast<int>(access));
  if (mr != nullptr) return Region(shared_from_this(), mr);
  *again = errno == ENOMEM || errno == EAGAIN;
  const char* remedy = *again ? ": raise the limit of locked memory (ulimit -l)" : "";
  return system_error(format("registering %zu bytes with %s", bytes, name_.c_str()),
                      errno != 0 ? errno : ENOMEM)
      .with(format("RDMA%s", remedy));
}

Result<Region> Device::register_memory(const Memory& memory, unsigned access) const {
  Status no_dmabuf;
  if (memory.dmabuf >= 0 && api_->reg_dmabuf_mr != nullptr) {
    errno = 0;
    abi::Mr* mr = api_->reg_dmabuf_mr(pd_, memory.dmabuf_offset, memory.bytes,
                                      reinterpret_cast<uintptr_t>(memory.data), memory.dmabuf,
                                      static_cast<int>(access));
    if (mr != nullptr) return Region(shared_from_this(), mr);
    no_dmabuf = system_error("as a dma-buf", errno != 0 ? errno : EOPNOTSUPP);
  }
  bool again = false;
  auto region = register_memory(memory.data, memory.bytes, access, &again);
  if (region.ok() || no_dmabuf.ok()) return region;
  return region.status().with(no_dmabuf.message());
}

}  // namespace hetccl::transport::verbs
