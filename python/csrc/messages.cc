// Send and receive.
#include <c10/util/Exception.h>

#include <exception>
#include <iterator>
#include <utility>

#include "backend.h"
#include "parts.h"
#include "tensors.h"

namespace hetccl::torch_backend {
namespace {

template <typename List>
void append(List& to, List& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

hetcclResult_t launch_in_group(const std::vector<Launch>& launches, hetcclComm_t comm,
                               hetcclStream_t stream) {
  hetcclResult_t result = hetcclGroupStart();
  if (result != hetcclSuccess) return result;
  for (const Launch& launch : launches) {
    if (result == hetcclSuccess) result = launch(comm, stream);
  }
  const hetcclResult_t ended = hetcclGroupEnd();
  return result != hetcclSuccess ? result : ended;
}

}  // namespace

Operation HetcclBackend::merge(std::vector<Operation> messages) {
  if (messages.size() == 1) return std::move(messages.front());
  Operation operation;
  operation.type = c10d::OpType::COALESCED;
  operation.title = "hetccl:messages";
  operation.route = {Route::Kind::Several};
  std::vector<Launch> launches;
  for (Operation& message : messages) {
    append(operation.inputs, message.inputs);
    append(operation.outputs, message.outputs);
    append(operation.staging, message.staging);
    append(operation.copies, message.copies);
    append(operation.host_copies, message.host_copies);
    append(launches, message.launches);
  }
  operation.launches.push_back(
      [launches = std::move(launches)](hetcclComm_t comm, hetcclStream_t stream) {
        return launch_in_group(launches, comm, stream);
      });
  return operation;
}

// A GPU's streams share its queues of the hardware: there a send that waits for room would hold up
// the receive behind it, if each were a call. On the host each message has its route.
void HetcclBackend::start_kept(Block& block) {
  constexpr std::chrono::milliseconds kOfGroup(0);
  if (streams_ != nullptr && !block.messages.empty()) {
    block.works.push_back(submit(merge(std::move(block.messages)), kOfGroup, false));
  } else {
    for (Operation& message : block.messages) {
      block.works.push_back(submit(std::move(message), kOfGroup, false));
    }
  }
}

bool HetcclBackend::keep_message(Operation& operation) {
  const std::lock_guard lock(blocks_mutex_);
  Block* block = find_block_locked();
  if (block == nullptr) return false;
  block->messages.push_back(std::move(operation));
  return true;
}

// Torch never ends a block that an exception leaves: its next collectives would only be noted.
bool HetcclBackend::keep_refusal(const std::exception_ptr& refusal) {
  const std::lock_guard lock(blocks_mutex_);
  Block* block = find_block_locked();
  if (block == nullptr) return false;
  if (block->refusal == nullptr) block->refusal = refusal;
  return true;
}

Operation HetcclBackend::describe_message(const Where& where, Route::Kind kind, Tensors& tensors,
                                          int peer, int tag) {
  check_one(where, tensors.size());
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_, "hetccl: ", where.operation, " on rank ", rank_,
                    ": ", peer, " is not a rank of a group of ", size_);
  TORCH_CHECK_VALUE(peer != rank_, "hetccl: ", where.operation, " on rank ", rank_,
                    ": a rank cannot exchange messages with itself: copy the tensor");
  TORCH_CHECK_VALUE(tag >= 0, "hetccl: ", where.operation, " on rank ", rank_, ": tag ", tag,
                    " is negative");
  const bool sends = kind == Route::Kind::Send;
  Operation operation;
  const at::Tensor tensor = packed(where, operation, tensors.front(), sends ? Use::In : Use::Out);
  check_tensor(where, "tensor", tensor);
  operation.type = sends ? c10d::OpType::SEND : c10d::OpType::RECV;
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
  return operation;
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::message(const char* name, Route::Kind kind,
                                                      Tensors& tensors, int peer, int tag) {
  try {
    Operation operation = describe_message({name, rank_}, kind, tensors, peer, tag);
    if (keep_message(operation)) return nullptr;
    return submit(std::move(operation), std::chrono::milliseconds(0), false);
  } catch (...) {
    if (!keep_refusal(std::current_exception())) throw;
    return nullptr;
  }
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::send(Tensors& tensors, int destination, int tag) {
  return message("send", Route::Kind::Send, tensors, destination, tag);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::recv(Tensors& tensors, int source, int tag) {
  return message("recv", Route::Kind::Recv, tensors, source, tag);
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
