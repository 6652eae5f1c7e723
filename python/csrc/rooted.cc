// Gather and scatter: passes the root's list of parts to the C API as one flat buffer.
#include <c10/util/Exception.h>

#include <utility>

#include "backend.h"
#include "parts.h"
#include "tensors.h"

namespace hetccl::torch_backend {
namespace {

/// Checks the root's list of parts; other ranks pass none.
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
  Request request(c10d::OpType::GATHER, "hetccl:gather", inputs);
  const at::Tensor input = packed(where, request, inputs.front(), Use::In);
  check_tensor(where, "the input", input);
  void* to = nullptr;
  if (is_root) {
    request.outputs = outputs.front();
    const Tensors parts = local(where, request, outputs.front(), Use::Out);
    check_parts(where, "output", parts, size_, "the input", input);
    check_even(where, "output", parts, "the input", input);
    const Flat flat(parts);
    flat.spread(request, parts);
    to = flat.buffer().mutable_data_ptr();
  }
  request.calls.emplace_back(hetcclCallGather, movable(input), input.const_data_ptr(), to,
                             static_cast<int>(opts.rootRank));
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::scatter(Tensors& outputs,
                                                      std::vector<Tensors>& inputs,
                                                      const c10d::ScatterOptions& opts) {
  const Where where{"scatter", rank_};
  check_root(where.operation, opts.rootRank);
  const bool is_root = opts.rootRank == rank_;
  check_one(where, outputs.size());
  check_root_list(where, "input", inputs.size(), is_root);
  Request request(c10d::OpType::SCATTER, "hetccl:scatter", {}, outputs);
  const at::Tensor output = packed(where, request, outputs.front(), Use::Out);
  check_tensor(where, "the output", output);
  const void* from = nullptr;
  if (is_root) {
    const Tensors parts = local(where, request, inputs.front(), Use::In);
    check_parts(where, "input", parts, size_, "the output", output);
    check_even(where, "input", parts, "the output", output);
    request.inputs = inputs.front();
    const Flat flat(parts);
    flat.fill(parts);
    request.staging.push_back(flat.buffer());
    from = flat.buffer().const_data_ptr();
  }
  request.calls.emplace_back(hetcclCallScatter, movable(output), from, output.mutable_data_ptr(),
                             static_cast<int>(opts.rootRank));
  return submit(std::move(request), opts);
}

}  // namespace hetccl::torch_backend
