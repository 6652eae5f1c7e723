// Gather and scatter, composed of collectives that hetccl has. They cost what those cost: every
// rank receives what the root alone needs (gather), or what all ranks together need (scatter).
#include <c10/util/Exception.h>

#include <utility>

#include "backend.h"
#include "parts.h"
#include "tensors.h"

namespace hetccl::torch_backend {
namespace {

/// The root's list of parts; other ranks pass none.
void check_root_list(const Where& where, const char* kind, size_t lists, bool is_root) {
  TORCH_CHECK_VALUE(lists == (is_root ? 1U : 0U), "hetccl: ", where.operation, " on rank ",
                    where.rank, ": got ", lists, " ", kind,
                    " lists; the root passes one, and the other ranks none");
}

}  // namespace

void HetcclBackend::check_root(const char* operation, int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "hetccl: ", operation, " on rank ", rank_, ": root ",
                    root, " is not a rank of a group of ", size_);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                     const c10d::GatherOptions& opts) {
  const Where where{"gather", rank_};
  check_root(where.operation, opts.rootRank);
  const bool is_root = opts.rootRank == rank_;
  check_one(where, inputs.size());
  check_root_list(where, "output", outputs.size(), is_root);
  Operation operation;
  operation.type = c10d::OpType::GATHER;
  operation.title = "hetccl:gather";
  operation.inputs = inputs;
  const at::Tensor& input = inputs.front();
  if (is_root) {
    operation.outputs = outputs.front();
    add_all_gather(operation, where.operation, outputs.front(), input);
  } else {
    check_tensor(where, "the input", input);
    operation.staging = {flat_like(input, size_)};
    add_all_gather(operation, where.operation, operation.staging.front(), input);
  }
  return submit(std::move(operation), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::scatter(Tensors& outputs,
                                                      std::vector<Tensors>& inputs,
                                                      const c10d::ScatterOptions& opts) {
  const Where where{"scatter", rank_};
  check_root(where.operation, opts.rootRank);
  const bool is_root = opts.rootRank == rank_;
  check_one(where, outputs.size());
  check_root_list(where, "input", inputs.size(), is_root);
  Operation operation;
  operation.type = c10d::OpType::SCATTER;
  operation.title = "hetccl:scatter";
  operation.outputs = outputs;
  const at::Tensor& output = outputs.front();
  if (is_root) {
    const Tensors& parts = inputs.front();
    check_parts(where, "input", parts, size_, "the output", output);
    operation.inputs = parts;
    const Flat flat(parts);
    flat.fill(parts);
    operation.staging = {flat.buffer()};
  } else {
    check_tensor(where, "the output", output);
    operation.staging = {flat_like(output, size_)};
  }
  const at::Tensor& flat = operation.staging.front();
  add_broadcast(operation, flat, static_cast<int>(opts.rootRank));
  operation.copies.emplace_back(output, slice_of(flat, output, static_cast<size_t>(rank_)));
  return submit(std::move(operation), opts);
}

}  // namespace hetccl::torch_backend
