/// The operators torch.ops.hetccl, by which torch_backend.py reaches the backend. They use no
/// Python, so one library serves every Python.
///
/// TorchScript knows no class for stores and backends, but it knows c10d::ProcessGroup: Python and
/// the operators pass each other a *carrier*, a process group that only holds a store, or a backend
/// for host tensors.
#include <ATen/core/ivalue.h>
#include <torch/library.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "backend.h"
#include "host_work.h"
#include "registry.h"

namespace hetccl::torch_backend {
namespace {

using std::chrono::milliseconds;
using Carrier = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Holds the living backends of the process. Never freed, because backends outlive static objects.
Registry& registry() {
  static const auto* const only = new std::shared_ptr<Registry>(std::make_shared<Registry>());
  return **only;
}

Carrier carry(const Registry::BackendPtr& backend) {
  auto carrier = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
  carrier->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return carrier;
}

/// Throws ValueError if the carrier's backend is not hetccl's.
Registry::BackendPtr backend_in(const Carrier& carrier) {
  const auto backend = carrier->getBackend(c10::kCPU);
  auto* own = dynamic_cast<HetcclBackend*>(backend.get());
  TORCH_CHECK_VALUE(own != nullptr, "hetccl: backend ", backend->getBackendName(),
                    " is not hetccl's");
  return Registry::BackendPtr::reclaim_copy(own);
}

Carrier create(const Carrier& place, const std::string& name, std::vector<int64_t> global_ranks,
               int64_t timeout_ms, std::optional<c10::Device> device,
               const std::optional<Carrier>& world, std::optional<std::string> wire,
               std::optional<std::string> wire_gather, std::optional<bool> wire_inside) {
  c10d::DistributedBackendOptions options;
  options.store = place->getStore();
  options.group_rank = place->getRank();
  options.group_size = place->getSize();
  options.timeout = milliseconds(timeout_ms);
  options.group_id = name;
  options.global_ranks_in_group = std::move(global_ranks);
  return carry(registry().create(options, device, world ? backend_in(*world) : nullptr,
                                 {std::move(wire), std::move(wire_gather), wire_inside}));
}

void close_all(int64_t grace_ms) {
  registry().close_all(milliseconds(grace_ms));
}

/// Returns the name, the timeout in ms and the global ranks of the backend's options.
std::tuple<std::string, int64_t, std::vector<int64_t>> options(const Carrier& carrier) {
  const auto own = backend_in(carrier)->getBackendOptions();
  return {own->group_name,
          own->timeout.count(),
          {own->global_ranks_in_group.begin(), own->global_ranks_in_group.end()}};
}

/// Returns the fields of hetcclCommStats_t in their order.
std::vector<int64_t> stats(const Carrier& carrier) {
  const hetcclCommStats_t found = backend_in(carrier)->stats();
  std::vector<int64_t> fields;
  for (const uint64_t field :
       {found.operations, found.cross_bytes_sent, found.least_cross_bytes, found.plans}) {
    fields.push_back(static_cast<int64_t>(field));
  }
  return fields;
}

std::string topology(const Carrier& carrier) {
  return backend_in(carrier)->topology();
}

std::string tuning(const Carrier& carrier) {
  return backend_in(carrier)->tuning();
}

void encode(const Carrier& carrier, const at::Tensor& tensor, const at::Tensor& codes,
            const std::string& encoding) {
  backend_in(carrier)->encode(tensor, codes, encoding);
}

void decode(const Carrier& carrier, const at::Tensor& codes, const at::Tensor& tensor,
            const std::string& encoding) {
  backend_in(carrier)->decode(codes, tensor, encoding);
}

/// `kind` is a RedOpType. PREMUL_SUM has one of the factors.
HetcclBackend::WorkPtr all_reduce_with_residual(const Carrier& carrier, const at::Tensor& tensor,
                                                const at::Tensor& residual, int64_t kind,
                                                std::optional<double> factor,
                                                const std::optional<at::Tensor>& factors) {
  c10d::ReduceOp op;
  op.op_ = static_cast<c10d::ReduceOp::RedOpType>(kind);
  if (factor) op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(*factor);
  if (factors) op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(*factors);
  return backend_in(carrier)->all_reduce_with_residual(tensor, residual, op);
}

}  // namespace
}  // namespace hetccl::torch_backend

TORCH_LIBRARY(hetccl, library) {
  namespace own = hetccl::torch_backend;
  library.def("create", &own::create);
  library.def("close_all", &own::close_all);
  library.def("options", &own::options);
  library.def("stats", &own::stats);
  library.def("topology", &own::topology);
  library.def("tuning", &own::tuning);
  library.def("encode", &own::encode);
  library.def("decode", &own::decode);
  library.def("all_reduce_with_residual", &own::all_reduce_with_residual);
  library.def("seconds_waited", &own::seconds_waited);
}
