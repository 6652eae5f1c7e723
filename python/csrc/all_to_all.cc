#include <c10/util/Exception.h>

#include <utility>

#include "backend.h"
#include "parts.h"
#include "tensors.h"

namespace hetccl::torch_backend {
namespace {

/// Elements that go to each rank or come from it. `splits` counts rows of `tensor`; if empty, all
/// ranks get equally many.
std::vector<size_t> counts_by_rank(const Where& where, const char* argument,
                                   const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                   int size) {
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : tensor.numel();
  std::vector<int64_t> of_rank = splits;
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "hetccl: ", where.operation, " on rank ", where.rank, ": ",
                      argument, " has ", rows, " rows, which do not divide among ", size,
                      " ranks: pass split sizes");
    of_rank.assign(static_cast<size_t>(size), rows / size);
  }
  int64_t total = 0;
  bool valid = of_rank.size() == static_cast<size_t>(size);
  for (const int64_t part : of_rank) {
    valid = valid && part >= 0 && part <= rows;
    total += valid ? part : 0;
  }
  TORCH_CHECK_VALUE(valid && total == rows, "hetccl: ", where.operation, " on rank ", where.rank,
                    ": the split sizes of ", argument, " must be ", size,
                    " numbers that add up to its ", rows, " rows");
  const size_t of_row = rows > 0 ? movable(tensor).count / static_cast<size_t>(rows) : 0;
  std::vector<size_t> counts;
  for (const int64_t part : of_rank) counts.push_back(static_cast<size_t>(part) * of_row);
  return counts;
}

void add_all_to_all(Request& request, const at::Tensor& output, std::vector<size_t> to_here,
                    const at::Tensor& input, std::vector<size_t> from_here) {
  request.calls.push_back(ApiCall(hetcclCallAllToAllV, movable(input), input.const_data_ptr(),
                                  output.mutable_data_ptr())
                              .send_counts(std::move(from_here))
                              .recv_counts(std::move(to_here)));
}

}  // namespace

c10::intrusive_ptr<c10d::Work> HetcclBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                            std::vector<int64_t>& output_splits,
                                                            std::vector<int64_t>& input_splits,
                                                            const c10d::AllToAllOptions& opts) {
  const Where where{"all_to_all_single", rank_};
  Request request(c10d::OpType::ALLTOALL_BASE, "hetccl:all_to_all_single", {input}, {output});
  const at::Tensor from = packed(where, request, input, Use::In);
  const at::Tensor to = packed(where, request, output, Use::Out);
  check_tensor(where, "the input", from);
  check_tensor(where, "the output", to);
  check_same_type(where, "the output", to, from);
  add_all_to_all(request, to, counts_by_rank(where, "the output", to, output_splits, size_), from,
                 counts_by_rank(where, "the input", from, input_splits, size_));
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                       const c10d::AllToAllOptions& opts) {
  const Where where{"all_to_all", rank_};
  check_lists(where, outputs.size(), inputs.size());
  const auto own = static_cast<size_t>(rank_);
  TORCH_CHECK_VALUE(inputs.size() == static_cast<size_t>(size_), "hetccl: all_to_all on rank ",
                    rank_, ": the lists have ", inputs.size(),
                    " tensors, but must have one per rank: ", size_);
  Request request(c10d::OpType::ALLTOALL, "hetccl:all_to_all", inputs, outputs);
  const Tensors from = local(where, request, inputs, Use::In);
  const Tensors to = local(where, request, outputs, Use::Out);
  check_parts(where, "input", from, size_, "its own output", to[own]);
  check_parts(where, "output", to, size_, "its own input", from[own]);
  const Flat sent(from), received(to);
  sent.fill(from);
  request.staging.push_back(sent.buffer());
  received.spread(request, to);
  add_all_to_all(request, received.buffer(), counts_of(to), sent.buffer(), counts_of(from));
  return submit(std::move(request), opts);
}

}  // namespace hetccl::torch_backend
