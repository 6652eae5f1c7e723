// Send and receive, also between a rank and itself.
#include <c10/util/Exception.h>

#include <algorithm>
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

ApiCall call_of(bool sends, const at::Tensor& tensor, int peer, int tag) {
  const auto told = static_cast<uint32_t>(tag);
  const Elements elements = movable(tensor);
  if (sends)
    return ApiCall(hetcclCallSend, elements, tensor.const_data_ptr(), nullptr, peer).tag(told);
  return ApiCall(hetcclCallRecv, elements, nullptr, tensor.mutable_data_ptr(), peer).tag(told);
}

}  // namespace

Request HetcclBackend::merge(std::vector<Request> messages) {
  if (messages.size() == 1) return std::move(messages.front());
  Request request(c10d::OpType::COALESCED, "hetccl:messages");
  request.order = {OrderKey::Kind::Several};
  for (Request& message : messages) {
    append(request.inputs, message.inputs);
    append(request.outputs, message.outputs);
    append(request.staging, message.staging);
    append(request.copies, message.copies);
    append(request.host_copies, message.host_copies);
    append(request.calls, message.calls);
  }
  return request;
}

// On a GPU all messages start in one call: streams share hardware queues, so a send that waits for
// room could block the receive behind it. On the host each message has its own order.
void HetcclBackend::start_kept(Block& block) {
  constexpr std::chrono::milliseconds kOfGroup(0);
  start_own(block);
  if (streams_ != nullptr && !block.messages.empty()) {
    block.works.push_back(submit(merge(std::move(block.messages)), kOfGroup, false));
  } else {
    for (Request& message : block.messages) {
      block.works.push_back(submit(std::move(message), kOfGroup, false));
    }
  }
}

bool HetcclBackend::keep_message(Request& request, std::optional<OwnMessage>& own) {
  const std::lock_guard lock(blocks_mutex_);
  Block* block = find_block_locked();
  if (block == nullptr) return false;
  if (own)
    block->own.push_back(std::move(*own));
  else
    block->messages.push_back(std::move(request));
  return true;
}

// torch does not end a block after an exception, so the thread's next collectives would stay in it.
// Therefore errors are kept for endCoalescing.
bool HetcclBackend::keep_refusal(const std::exception_ptr& refusal) {
  const std::lock_guard lock(blocks_mutex_);
  Block* block = find_block_locked();
  if (block == nullptr) return false;
  if (block->refusal == nullptr) block->refusal = refusal;
  return true;
}

Request HetcclBackend::describe_message(const Where& where, OrderKey::Kind kind, Tensors& tensors,
                                        int peer, int tag, std::optional<OwnMessage>& own) {
  check_one(where, tensors.size());
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_, "hetccl: ", where.operation, " on rank ", rank_,
                    ": ", peer, " is not a rank of a group of ", size_);
  TORCH_CHECK_VALUE(tag >= 0, "hetccl: ", where.operation, " on rank ", rank_, ": tag ", tag,
                    " is negative");
  const bool sends = kind == OrderKey::Kind::Send;
  Request request(sends ? c10d::OpType::SEND : c10d::OpType::RECV,
                  sends ? "hetccl:send" : "hetccl:recv", tensors, tensors);
  const at::Tensor tensor = packed(where, request, tensors.front(), sends ? Use::In : Use::Out);
  check_tensor(where, "tensor", tensor);
  request.order = {kind, peer};
  if (peer == rank_) {
    own = OwnMessage{sends, tag, tensor, std::move(request)};
    return {};
  }
  request.calls.push_back(call_of(sends, tensor, peer, tag));
  return request;
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::message(const char* name, OrderKey::Kind kind,
                                                      Tensors& tensors, int peer, int tag) {
  try {
    std::optional<OwnMessage> own;
    Request request = describe_message({name, rank_}, kind, tensors, peer, tag, own);
    if (keep_message(request, own)) return nullptr;
    if (own) {
      const std::lock_guard turn(own_mutex_);
      return start_own_locked(std::move(*own));
    }
    return submit(std::move(request), std::chrono::milliseconds(0), false);
  } catch (...) {
    if (!keep_refusal(std::current_exception())) throw;
    return nullptr;
  }
}

Request HetcclBackend::join_ends(OwnMessage one, OwnMessage other) const {
  if (!one.sends) std::swap(one, other);
  for (OwnMessage* end : {&one, &other}) {
    end->request.staging.push_back(end->tensor);
    end->request.calls = {call_of(end->sends, end->tensor, rank_, end->tag)};
  }
  std::vector<Request> ends;
  ends.push_back(std::move(one.request));
  ends.push_back(std::move(other.request));
  Request both = merge(std::move(ends));
  both.order = {OrderKey::Kind::Recv, rank_};
  return both;
}

// Starts sends first, so that a receive of the block finds its send: the block's work must cover
// both.
void HetcclBackend::start_own(Block& block) {
  const std::lock_guard turn(own_mutex_);
  std::map<int, int64_t> unmatched;  // sends minus receives, by tag
  for (const OwnMessage& message : block.own) unmatched[message.tag] += message.sends ? 1 : -1;
  for (const OwnMessage& message : block.own) {
    const int64_t left = unmatched[message.tag] + own_messages_.count_unmatched_sends(message.tag);
    TORCH_CHECK_VALUE(message.sends || left >= 0, "hetccl: rank ", rank_,
                      " receives from itself with tag ", message.tag,
                      " in a batch, and has no such send: put the send into the batch, or call it "
                      "before");
  }
  std::stable_partition(block.own.begin(), block.own.end(),
                        [](const OwnMessage& message) { return message.sends; });
  for (OwnMessage& message : block.own) {
    block.works.push_back(start_own_locked(std::move(message)));
  }
}

// A send is buffered: it is complete before its receive is called. A receive waits for its send.
c10::intrusive_ptr<HetcclWork> HetcclBackend::start_own_locked(OwnMessage message) {
  constexpr std::chrono::milliseconds kOfGroup(0);
  const Where where{message.sends ? "send" : "recv", rank_};
  if (!message.sends) {
    auto send = own_messages_.take_send(where, message);
    if (!send) return await_send(std::move(message));
    if (send->written != nullptr) send->written->block(streams_->current());
    return submit(join_ends(std::move(*send), std::move(message)), kOfGroup, false);
  }
  if (auto receive = own_messages_.take_receive(where, message)) {
    try {
      auto both =
          submit(join_ends(std::move(message), std::move(receive->message)), kOfGroup, false);
      receive->work->attach(both);
      return both;
    } catch (const std::exception& error) {
      receive->work->give_up({hetcclInvalidUsage, error.what()});
      throw;
    }
  }
  Request done(message.request.type, message.request.title, message.request.outputs,
               message.request.outputs);
  done.order = {OrderKey::Kind::Send, rank_};
  message.tensor = message.tensor.detach().clone();
  if (streams_ != nullptr) message.written = streams_->mark(streams_->current());
  message.request = {};
  own_messages_.keep(std::move(message));
  return submit(std::move(done), kOfGroup, false);
}

c10::intrusive_ptr<HetcclWork> HetcclBackend::await_send(OwnMessage receive) {
  Request later(receive.request.type, receive.request.title, receive.request.outputs,
                receive.request.outputs);
  later.device = device_;
  later.order = receive.request.order;
  auto watcher = watcher_of(later);
  auto work = c10::make_intrusive<OwnReceive>(rank_, sequence_++, name_, std::move(later),
                                              communicator_, std::move(watcher));
  work->launch(std::chrono::milliseconds(timeout_ms_.load()), false);
  own_messages_.keep({std::move(receive), work});
  return work;
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::send(Tensors& tensors, int destination, int tag) {
  return message("send", OrderKey::Kind::Send, tensors, destination, tag);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::recv(Tensors& tensors, int source, int tag) {
  return message("recv", OrderKey::Kind::Recv, tensors, source, tag);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::recvAnysource(Tensors& tensors, int tag) {
  const Where where{"recv from any rank", rank_};
  check_one(where, tensors.size());
  TORCH_CHECK_VALUE(tag >= 0, "hetccl: recv on rank ", rank_, ": tag ", tag, " is negative");
  Request request(c10d::OpType::RECVANYSOURCE, "hetccl:recv_anysource", tensors, tensors);
  const at::Tensor tensor = packed(where, request, tensors.front(), Use::Out);
  TORCH_CHECK_NOT_IMPLEMENTED(
      streams_ == nullptr, "hetccl: recv on rank ", rank_, ", which is in process group '", group_,
      "' with ", device_.str(),
      ", must name the rank that sends (src=), as with NCCL; a group that this rank is in with its "
      "host memory can receive from any");
  check_tensor(where, "tensor", tensor);
  request.order = {OrderKey::Kind::Recv, -1};
  request.source = std::make_shared<int>(-1);
  request.calls.push_back(
      ApiCall(hetcclCallRecvAny, movable(tensor), nullptr, tensor.mutable_data_ptr())
          .tag(static_cast<uint32_t>(tag))
          .source(request.source.get()));
  return submit(std::move(request), std::chrono::milliseconds(0), false);
}

}  // namespace hetccl::torch_backend
