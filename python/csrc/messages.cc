// Send and receive.
#include <c10/util/Exception.h>

#include <utility>

#include "backend.h"
#include "parts.h"
#include "tensors.h"

namespace hetccl::torch_backend {

c10::intrusive_ptr<c10d::Work> HetcclBackend::message(const char* name, Route::Kind kind,
                                                      c10d::OpType type, Tensors& tensors, int peer,
                                                      int tag) {
  const Where where{name, rank_};
  check_one(where, tensors.size());
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_, "hetccl: ", name, " on rank ", rank_, ": ", peer,
                    " is not a rank of a group of ", size_);
  TORCH_CHECK_VALUE(peer != rank_, "hetccl: ", name, " on rank ", rank_,
                    ": a rank cannot exchange messages with itself: copy the tensor");
  TORCH_CHECK_VALUE(tag >= 0, "hetccl: ", name, " on rank ", rank_, ": tag ", tag, " is negative");
  const bool sends = kind == Route::Kind::Send;
  Operation operation;
  const at::Tensor tensor = packed(where, operation, tensors.front(), sends ? Use::In : Use::Out);
  check_tensor(where, "tensor", tensor);
  operation.type = type;
  operation.title = sends ? "hetccl:send" : "hetccl:recv";
  operation.inputs = operation.outputs = tensors;
  operation.route = {kind, peer};
  operation.launches.push_back(
      [sends, data = sends ? const_cast<void*>(tensor.const_data_ptr()) : tensor.mutable_data_ptr(),
       elements = movable(tensor), peer,
       tag = static_cast<uint32_t>(tag)](hetcclComm_t comm, hetcclStream_t stream) {
        const auto [count, element] = elements;
        return sends ? hetcclSendTag(data, count, element, peer, tag, comm, stream)
                     : hetcclRecvTag(data, count, element, peer, tag, comm, stream);
      });
  return submit(std::move(operation), std::chrono::milliseconds(0), false);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::send(Tensors& tensors, int destination, int tag) {
  return message("send", Route::Kind::Send, c10d::OpType::SEND, tensors, destination, tag);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::recv(Tensors& tensors, int source, int tag) {
  return message("recv", Route::Kind::Recv, c10d::OpType::RECV, tensors, source, tag);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::recvAnysource(Tensors& tensors, int tag) {
  const Where where{"recv from any rank", rank_};
  check_one(where, tensors.size());
  TORCH_CHECK_VALUE(tag >= 0, "hetccl: recv on rank ", rank_, ": tag ", tag, " is negative");
  Operation operation;
  const at::Tensor tensor = packed(where, operation, tensors.front(), Use::Out);
  TORCH_CHECK_NOT_IMPLEMENTED(
      streams_ == nullptr, "hetccl: recv on rank ", rank_, ", which is in process group '", group_,
      "' with ", device_.str(),
      ", must name the rank that sends (src=), as with NCCL; a group that this rank is in with its "
      "host memory can receive from any");
  check_tensor(where, "tensor", tensor);
  operation.type = c10d::OpType::RECVANYSOURCE;
  operation.title = "hetccl:recv_anysource";
  operation.inputs = operation.outputs = tensors;
  operation.route = {Route::Kind::Recv, -1};
  operation.source = std::make_shared<int>(-1);
  operation.launches.push_back([data = tensor.mutable_data_ptr(), elements = movable(tensor),
                                tag = static_cast<uint32_t>(tag), source = operation.source](
                                   hetcclComm_t comm, hetcclStream_t stream) {
    const auto [count, element] = elements;
    return hetcclRecvAny(data, count, element, tag, source.get(), comm, stream);
  });
  return submit(std::move(operation), std::chrono::milliseconds(0), false);
}

}  // namespace hetccl::torch_backend
