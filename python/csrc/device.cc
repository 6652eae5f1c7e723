// Chooses the device from which a rank of a process group communicates, and copies tensors of other
// devices.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <string_view>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "backend.h"
#include "rendezvous.h"

namespace hetccl::torch_backend {

bool HetcclBackend::serves(c10::DeviceType type) const {
  try {
    return c10d::resolve_process_group(group_)->getBackend(type)->getBackendName() == kName;
  } catch (const std::exception&) {
    return false;
  }
}

c10::Device HetcclBackend::choose_device(std::optional<c10::Device> tensor_device) {
  if (const auto bound = getBoundDeviceId()) return bound->is_cpu() ? c10::kCPU : *bound;
  if (tensor_device && tensor_device->type() != c10::kCPU) {
    return tensor_device->has_index() ? *tensor_device : current_device(tensor_device->type());
  }
  // The call is a barrier, or its tensor is on the host, as those of objects are. This rank may
  // still work on a GPU.
  if (!serves(c10::kCUDA)) return c10::kCPU;
  if (preferred_device_) return *preferred_device_;
  return uses_current_device(c10::kCUDA) ? current_device(c10::kCUDA) : c10::Device(c10::kCPU);
}

void HetcclBackend::open(std::optional<c10::Device> tensor_device) {
  if (opened_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(open_mutex_);
  if (opened_) return;
  TORCH_CHECK_WITH(DistBackendError, !ended_, "hetccl: process group '", group_,
                   "' has been destroyed; make a new one");
  const c10::Device device = choose_device(tensor_device);
  await_first_call(*store_, arrival_, rank_, size_, group_, options_->timeout);
  join(device);
}

std::optional<c10::Device> HetcclBackend::preferred_device() const {
  if (opened_) return device_;
  if (const auto bound = getBoundDeviceId()) return bound;
  return preferred_device_;
}

void HetcclBackend::join(c10::Device device) {
  const hetcclUniqueId id = share_unique_id(*store_, arrival_, rank_, group_, options_->timeout);
  Failure failure{};
  auto joined = Communicator::join(id, rank_, size_, name_of(device), options_->timeout,
                                   options_->wire, failure);
  // Wrong arguments fail the call at once, and the other ranks may not have read the id by then.
  if (failure.result != hetcclInvalidArgument) forget_unique_id(*store_, arrival_, rank_);
  const std::string place = c10::str("process group '", group_, "' from ",
                                     device.is_cpu() ? "host memory" : device.str());
  // A wrong setting of this rank is reported first, since the network is not to blame.
  TORCH_CHECK_WITH(DistBackendError, failure.result != hetcclInvalidArgument,
                   "hetccl: ", failure.text, " (this rank cannot join ", place, ")");
  TORCH_CHECK_WITH(DistBackendError, joined != nullptr, "hetccl: cannot join ", place, ": ",
                   failure.text, " [", hetcclGetErrorString(failure.result), "]");
  const std::string_view id_bytes(id.internal, sizeof(id.internal));
  adopt(std::move(joined), device, std::hash<std::string_view>{}(id_bytes));
}

void HetcclBackend::adopt(std::shared_ptr<Communicator> communicator, c10::Device device,
                          uint64_t session) {
  communicator_ = std::move(communicator);
  session_ = session;
  monitored_barrier_ = std::make_unique<MonitoredBarrier>(store_, rank_, size_, session);
  device_ = device;
  if (!device.is_cpu()) streams_ = std::make_shared<DeviceStreams>(device);
  opened_.store(true, std::memory_order_release);
}

at::Tensor HetcclBackend::local(const Where& where, Request& request, const at::Tensor& tensor,
                                Use use) {
  if (!tensor.defined()) return tensor;  // the checks refuse it
  const c10::Device device = tensor.device();
  open(device);
  if (device == device_) return tensor;
  TORCH_CHECK_VALUE(!device_.is_cpu(), "hetccl: ", where.operation, " on rank ", where.rank,
                    ": a tensor is on ", device.str(), ", but this rank is in process group '",
                    group_,
                    "' with its host memory (cpu), as its first call was; pass "
                    "device_id=torch.device(\"cuda:N\") to init_process_group, or call "
                    "torch.cuda.set_device(N) before the group's first collective");
  TORCH_CHECK_VALUE(device.is_cpu(), "hetccl: ", where.operation, " on rank ", where.rank,
                    ": a tensor is on ", device.str(), ", but this rank is in process group '",
                    group_, "' with ", device_.str(), "; move it there with .to(\"", device_.str(),
                    "\")");
  at::Tensor copy = use == Use::Out ? at::empty(tensor.sizes(), tensor.options().device(device_))
                                    : tensor.detach().to(device_);
  request.staging.push_back(copy);
  if (use != Use::In) request.host_copies.emplace_back(tensor, copy);
  return copy;
}

at::Tensor HetcclBackend::packed(const Where& where, Request& request, const at::Tensor& tensor,
                                 Use use) {
  const at::Tensor placed = local(where, request, tensor, use);
  if (!placed.defined() || placed.layout() != at::kStrided || placed.is_contiguous() ||
      !placed.is_non_overlapping_and_dense()) {
    return placed;  // used as it is, or the checks refuse it
  }
  at::Tensor copy = use == Use::Out
                        ? at::empty(placed.sizes(), placed.options().requires_grad(false))
                        : placed.detach().contiguous();
  request.staging.push_back(copy);
  if (use != Use::In) request.copies.emplace_back(placed, copy);
  return copy;
}

Tensors HetcclBackend::packed(const Where& where, Request& request, const Tensors& tensors,
                              Use use) {
  Tensors contiguous;
  contiguous.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    contiguous.push_back(packed(where, request, tensor, use));
  }
  return contiguous;
}

Tensors HetcclBackend::local(const Where& where, Request& request, const Tensors& tensors,
                             Use use) {
  Tensors placed;
  placed.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    placed.push_back(local(where, request, tensor, use));
  }
  return placed;
}

}  // namespace hetccl::torch_backend
