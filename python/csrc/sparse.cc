// All-reduce of sparse tensors: every rank gets the entries of all ranks and adds them up in rank
// order, so that all ranks have the same bits.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <utility>

#include "backend.h"
#include "parts.h"
#include "tensors.h"

namespace hetccl::torch_backend {
namespace {

/// Bounds the description of a tensor that ranks exchange before the entries.
constexpr int64_t kMostDims = 12;
constexpr int64_t kHeader = 4;
constexpr int64_t kShapeLength = kHeader + kMostDims;

struct Shape {
  int64_t sparse_dim = 0, dense_dim = 0, entries = 0, type = 0;
  std::vector<int64_t> sizes;

  [[nodiscard]] bool matches(const Shape& other) const {
    return sparse_dim == other.sparse_dim && dense_dim == other.dense_dim && type == other.type &&
           sizes == other.sizes;
  }
  [[nodiscard]] std::string text() const {
    return c10::str(at::IntArrayRef(sizes), " of ",
                    c10::toString(static_cast<at::ScalarType>(type)), " with ", sparse_dim,
                    " sparse dimensions");
  }
};

at::Tensor row_of(const at::Tensor& tensor) {
  at::Tensor row = at::zeros({kShapeLength}, at::kLong);
  auto* out = row.mutable_data_ptr<int64_t>();
  out[0] = tensor.sparse_dim();
  out[1] = tensor.dense_dim();
  out[2] = tensor._nnz();
  out[3] = static_cast<int64_t>(tensor.scalar_type());
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), out + kHeader);
  return row;
}

Shape shape_of(const int64_t* row) {
  const int64_t dims = std::clamp<int64_t>(row[0] + row[1], 0, kMostDims);
  return {row[0], row[1], row[2], row[3], {row + kHeader, row + kHeader + dims}};
}

void check_sparse(const Where& where, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const std::string call = c10::str("hetccl: ", where.operation, " on rank ", where.rank, ": ");
  TORCH_CHECK_VALUE(tensor.layout() == at::kSparse, call, "the tensor has the layout ",
                    tensor.layout(), "; of sparse ones hetccl reduces COO: call .to_sparse_coo()");
  TORCH_CHECK_NOT_IMPLEMENTED(op == c10d::ReduceOp::SUM, call,
                              "sparse tensors reduce by SUM only; call .to_dense() for others");
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK_TYPE(!c10::isFloat8Type(type) && !c10::isBarebonesUnsignedType(type), call,
                   c10::toString(type),
                   " tensors cannot be added where they are sparse; convert with .to(dtype)");
  TORCH_CHECK_VALUE(tensor.dim() <= kMostDims, call, "the sparse tensor has ", tensor.dim(),
                    " dimensions, more than ", kMostDims);
}

/// The blocks of all ranks, contiguous.
struct Blocks {
  at::Tensor buffer;
  Tensors of_rank;
  std::vector<size_t> counts;
};

Blocks make_blocks(const at::Tensor& own, const std::vector<std::vector<int64_t>>& sizes) {
  Blocks blocks;
  int64_t total = 0;
  for (const auto& size : sizes) total += c10::multiply_integers(size);
  blocks.buffer = at::empty({total}, own.options().requires_grad(false));
  int64_t at = 0;
  for (const auto& size : sizes) {
    const int64_t count = c10::multiply_integers(size);
    blocks.of_rank.push_back(blocks.buffer.narrow(0, at, count).view(size));
    blocks.counts.push_back(movable(blocks.of_rank.back()).count);
    at += count;
  }
  return blocks;
}

void add_exchange(Request& request, const at::Tensor& own, const Blocks& blocks) {
  request.staging.push_back(own);
  request.staging.push_back(blocks.buffer);
  request.calls.push_back(ApiCall(hetcclCallAllGatherV, movable(own), own.const_data_ptr(),
                                  blocks.buffer.mutable_data_ptr())
                              .recv_counts(blocks.counts));
}

/// Adds two ranks at a time, so that the device cannot choose the order of additions. Adds by
/// coalescing, since torch cannot add sparse halves.
at::Tensor add_up(const Tensors& indices, const Tensors& values, at::IntArrayRef sizes,
                  const at::TensorOptions& options) {
  at::Tensor sum =
      at::_sparse_coo_tensor_unsafe(indices[0], values[0], sizes, options)._coalesced_(true);
  for (size_t r = 1; r < indices.size(); ++r) {
    sum = at::_sparse_coo_tensor_unsafe(at::cat({sum._indices(), indices[r]}, 1),
                                        at::cat({sum._values(), values[r]}), sizes, options)
              .coalesce();
  }
  return sum;
}

}  // namespace

at::Tensor HetcclBackend::gather_shapes(const Where& where, const at::Tensor& tensor,
                                        std::chrono::milliseconds timeout) {
  Request request(c10d::OpType::ALLREDUCE, "hetccl:all_reduce_sparse");
  const at::Tensor own = row_of(tensor).to(device_);
  at::Tensor all = at::empty({size_, kShapeLength}, own.options());
  request.inputs = {own};
  request.outputs = {all};
  add_all_gather(request, where.operation, all, own);
  submit(std::move(request), timeout, true)->wait();
  return all.cpu();
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::allreduce_sparse(Tensors& tensors,
                                                               const c10d::AllreduceOptions& opts) {
  const Where where{"all_reduce of a sparse tensor", rank_};
  check_one(where, tensors.size());
  check_sparse(where, tensors.front(), opts.reduceOp);
  Request request(c10d::OpType::_ALLREDUCE_SPARSE, "hetccl:all_reduce_sparse", tensors, tensors);
  const at::Tensor own = local(where, request, tensors.front(), Use::In).detach().coalesce();
  const at::Tensor gathered = gather_shapes(where, own, opts.timeout);
  std::vector<std::vector<int64_t>> indices_sizes, values_sizes;
  const auto* rows = gathered.const_data_ptr<int64_t>();
  const Shape mine = shape_of(rows + rank_ * kShapeLength);
  for (int rank = 0; rank < size_; ++rank) {
    const Shape shape = shape_of(rows + rank * kShapeLength);
    TORCH_CHECK_VALUE(shape.matches(mine), "hetccl: all_reduce of a sparse tensor: rank ", rank,
                      " has ", shape.text(), ", and rank ", rank_, " has ", mine.text(),
                      "; pass tensors of one shape and type on every rank");
    indices_sizes.push_back({shape.sparse_dim, shape.entries});
    values_sizes.push_back({shape.entries});
    values_sizes.back().insert(values_sizes.back().end(), shape.sizes.begin() + shape.sparse_dim,
                               shape.sizes.end());
  }
  const at::Tensor own_indices = own._indices().contiguous(),
                   own_values = own._values().contiguous();
  const Blocks indices = make_blocks(own_indices, indices_sizes);
  const Blocks values = make_blocks(own_values, values_sizes);
  add_exchange(request, own_indices, indices);
  add_exchange(request, own_values, values);
  request.conclude = [tensor = tensors.front(), indices = indices.of_rank, values = values.of_rank,
                      options = own.options().requires_grad(false)] {
    const at::Tensor sum = add_up(indices, values, tensor.sizes(), options);
    tensor.copy_(sum.to(tensor.device()));
  };
  // On a GPU the sum's memory belongs to the caller's stream, so it must run there.
  return submit(std::move(request), opts.timeout, !opts.asyncOp || streams_ != nullptr);
}

}  // namespace hetccl::torch_backend
