// Encodes and decodes tensors as the group's collectives do, and all-reduces with error feedback.
#include <c10/util/Exception.h>

#include "backend.h"
#include "tensors.h"

namespace hetccl::torch_backend {
namespace {

void check_result(const Where& where, const std::optional<Failure>& failure) {
  if (!failure) return;
  const std::string text =
      c10::str("hetccl: ", where.operation, " on rank ", where.rank, ": ", failure->text);
  TORCH_CHECK_VALUE(failure->result != hetcclInvalidArgument, text);
  TORCH_CHECK_WITH(DistBackendError, false, text);
}

/// Throws unless `tensor` can be encoded to `codes`, or decoded from it.
Elements check_ends(const Where& where, const at::Tensor& tensor, const at::Tensor& codes,
                    const std::string& encoding) {
  check_dense(where, "the tensor", tensor);
  check_dense(where, "codes", codes);
  const std::string call = c10::str("hetccl: ", where.operation, " on rank ", where.rank, ": ");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), call,
                    "the tensor is not contiguous; pass tensor.contiguous()");
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, call,
                   c10::toString(type),
                   " has no encoding; convert to float32, float16 or bfloat16 with .to(dtype)");
  TORCH_CHECK_TYPE(codes.scalar_type() == at::kByte, call, "codes has ",
                   c10::toString(codes.scalar_type()), " elements, but must have uint8");
  TORCH_CHECK_VALUE(codes.device() == tensor.device(), call, "codes is on ", codes.device().str(),
                    ", the tensor on ", tensor.device().str(), "; keep both on one device");
  const Elements elements = movable(tensor);
  size_t bytes = 0;
  const hetcclResult_t result = hetcclEncodedBytes(elements.count, encoding.c_str(), &bytes);
  if (result != hetcclSuccess) check_result(where, last_failure(result));
  check_numel(where, "codes", codes, static_cast<int64_t>(bytes),
              c10::str("that many bytes hold ", elements.count, " elements in ", encoding));
  return elements;
}

}  // namespace

void HetcclBackend::recode(const Where& where, c10::Device device, const Recode& call) {
  if (device.is_cpu()) {
    const hetcclResult_t result = call(nullptr, nullptr);
    if (result != hetcclSuccess) check_result(where, last_failure(result));
    return;
  }
  const auto communicator = joined();
  TORCH_CHECK_VALUE(streams_ != nullptr && device == device_, "hetccl: ", where.operation,
                    " on rank ", where.rank, ": the tensor is on ", device.str(),
                    ", but this rank is in process group '", group_, "' with ", device_.str());
  void* const stream = streams_->current().native_handle();
  check_result(where, communicator->with([&](hetcclComm_t comm) { return call(comm, stream); }));
}

void HetcclBackend::encode(const at::Tensor& tensor, const at::Tensor& codes,
                           const std::string& encoding) {
  const Where where{"encode", rank_};
  const Elements elements = check_ends(where, tensor, codes, encoding);
  recode(where, tensor.device(), [&](hetcclComm_t comm, hetcclStream_t stream) {
    return hetcclEncode(tensor.const_data_ptr(), codes.mutable_data_ptr(), elements.count,
                        elements.type, encoding.c_str(), comm, stream);
  });
}

void HetcclBackend::decode(const at::Tensor& codes, const at::Tensor& tensor,
                           const std::string& encoding) {
  const Where where{"decode", rank_};
  const Elements elements = check_ends(where, tensor, codes, encoding);
  recode(where, tensor.device(), [&](hetcclComm_t comm, hetcclStream_t stream) {
    return hetcclDecode(codes.const_data_ptr(), tensor.mutable_data_ptr(), elements.count,
                        elements.type, encoding.c_str(), comm, stream);
  });
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::all_reduce_with_residual(const at::Tensor& tensor,
                                                                       const at::Tensor& residual,
                                                                       const c10d::ReduceOp& op) {
  const Where where{"all_reduce_with_residual", rank_};
  Request request(c10d::OpType::ALLREDUCE, "hetccl:all_reduce_with_residual", {tensor}, {tensor});
  const at::Tensor data = packed(where, request, tensor, Use::InOut);
  check_tensor(where, "tensor", data);
  check_dense(where, "residual", residual);
  check_same_type(where, "residual", residual, data);
  check_numel(where, "residual", residual, data.numel(), "as many as the tensor");
  TORCH_CHECK_VALUE(residual.is_contiguous() && residual.device() == data.device(),
                    "hetccl: ", where.operation, " on rank ", rank_,
                    ": residual must be contiguous on ", data.device().str(),
                    ", where this group works: torch.zeros(tensor.shape, dtype=tensor.dtype, "
                    "device=tensor.device) is");
  request.staging.push_back(residual);
  void* const to = data.mutable_data_ptr();
  request.calls.push_back(ApiCall(hetcclCallAllReduce, reducible(where, data, op), to, to)
                              .residual(residual.mutable_data_ptr()));
  return submit(std::move(request), c10d::AllreduceOptions());
}

}  // namespace hetccl::torch_backend
