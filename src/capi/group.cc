#include "capi/group.h"

#include <utility>
#include <vector>

#include "capi/process.h"
#include "capi/ranges.h"

namespace hetccl::capi {
namespace {

using comm::CollectiveArguments;
using comm::Communicator;
using exec::Message;

std::vector<uint64_t> copy_of(std::span<const uint64_t> values) {
  return {values.begin(), values.end()};
}

// A layout with memory of its own.
struct OwnLayout {
  explicit OwnLayout(const exec::Layout& layout)
      : counts(copy_of(layout.counts)), offsets(copy_of(layout.offsets)) {}
  [[nodiscard]] exec::Layout view() const { return {counts, offsets}; }
  std::vector<uint64_t> counts, offsets;
};

struct NotedCollective {
  std::shared_ptr<Communicator> communicator;
  hetcclStream_t stream;
  CollectiveArguments arguments;
  OwnLayout input, output;
  [[nodiscard]] CollectiveArguments call() const {
    CollectiveArguments call = arguments;
    call.input = input.view();
    call.output = output.view();
    return call;
  }
};

// Messages of one communicator on one stream: they go at the same time.
struct NotedMessages {
  std::shared_ptr<Communicator> communicator;
  hetcclStream_t stream;
  std::vector<Message> messages;
  [[nodiscard]] std::span<const Message> call() const { return messages; }
};

// Everything is checked before anything starts, and everything starts before anything is waited
// for: a thread may call for several ranks. Messages are the first, whatever their place among the
// collectives, on which ranks need not agree.
class Group {
 public:
  static Group& mine() {
    thread_local Group group;
    return group;
  }
  [[nodiscard]] bool is_open() const { return depth_ > 0; }
  void start() { ++depth_; }
  Status end();
  void add(Communicator& communicator, const CollectiveArguments& arguments,
           hetcclStream_t stream) {
    collectives_.push_back({communicator.shared_from_this(), stream, arguments,
                            OwnLayout(arguments.input), OwnLayout(arguments.output)});
  }
  void add(Communicator& communicator, const Message& message, hetcclStream_t stream);

 private:
  [[nodiscard]] Status check() const;
  [[nodiscard]] Status run() const;

  int depth_ = 0;
  std::vector<NotedMessages> messages_;
  std::vector<NotedCollective> collectives_;
};

void Group::add(Communicator& communicator, const Message& message, hetcclStream_t stream) {
  for (NotedMessages& exchange : messages_) {
    if (exchange.communicator.get() != &communicator || exchange.stream != stream) continue;
    exchange.messages.push_back(message);
    return;
  }
  messages_.push_back({communicator.shared_from_this(), stream, {message}});
}

Status Group::end() {
  if (depth_ == 0) {
    return error(Code::InvalidUsage, "hetcclGroupEnd without hetcclGroupStart in this thread");
  }
  if (--depth_ > 0) return {};
  size_t n_calls = collectives_.size();
  for (const NotedMessages& some : messages_) n_calls += some.messages.size();
  const Range range("group", n_calls);
  Group calls;
  calls.messages_.swap(messages_);
  calls.collectives_.swap(collectives_);
  HETCCL_TRY(calls.check().with("no call of the group was made"));
  return calls.run();
}

Status Group::check() const {
  for (const NotedMessages& some : messages_) HETCCL_TRY(some.communicator->check(some.call()));
  for (const NotedCollective& one : collectives_) HETCCL_TRY(one.communicator->check(one.call()));
  return {};
}

Status Group::run() const {
  struct Started {
    Communicator* communicator;
    Communicator::Ticket ticket;
  };
  std::vector<Started> started;
  Status first;
  const auto note = [&first](Status status) {
    if (first.ok()) first = std::move(status);
  };
  const auto start = [&](const auto& one) {
    const auto ticket = one.communicator->start(one.call(), one.stream);
    if (!ticket.ok()) return note(ticket.status());
    if (one.communicator->waits(one.stream))
      started.push_back({one.communicator.get(), ticket.value()});
  };
  for (const NotedMessages& some : messages_) start(some);
  for (const NotedCollective& one : collectives_) start(one);
  for (const Started& one : started) note(one.communicator->complete(one.ticket));
  return first;
}

// A message's memory is written by a receive alone.
hetcclResult_t message(hetcclComm_t comm, bool send, const void* data, size_t count,
                       hetcclDataType_t datatype, int peer, uint32_t tag, hetcclStream_t stream,
                       int* source = nullptr) {
  return with(comm, [&](Communicator& self) {
    return submit(self,
                  Message{.send = send,
                          .peer = peer,
                          .data = const_cast<void*>(data),
                          .type = narrow<DataType>(datatype),
                          .count = count,
                          .tag = tag,
                          .source = source},
                  stream);
  });
}

}  // namespace

Status submit(Communicator& communicator, const CollectiveArguments& arguments,
              hetcclStream_t stream) {
  Group& group = Group::mine();
  if (!group.is_open()) {
    const Signature& call = arguments.signature;
    const Range range(name_of(call.collective), call.count * size_of(call.type));
    return communicator.call(arguments, stream);
  }
  group.add(communicator, arguments, stream);
  return {};
}

Status submit_reduction(Communicator& communicator, hetcclRedOp_t op, CollectiveArguments arguments,
                        hetcclStream_t stream) {
  Signature& signature = arguments.signature;
  HETCCL_ASSIGN(const auto how, communicator.red_ops().find(static_cast<int>(op), signature.type));
  signature.op = how.op;
  arguments.factor = how.factor;
  return submit(communicator, arguments, stream);
}

Status submit(Communicator& communicator, const Message& message, hetcclStream_t stream) {
  Group& group = Group::mine();
  if (!group.is_open()) {
    const Range range(message.send ? "send" : "recv", message.count * size_of(message.type));
    return communicator.call(std::span(&message, 1), stream);
  }
  group.add(communicator, message, stream);
  return {};
}

Status outside_group(const char* function) {
  if (!Group::mine().is_open()) return {};
  return error(Code::InvalidUsage, "%s cannot be part of a group: call hetcclGroupEnd before",
               function);
}

}  // namespace hetccl::capi

hetcclResult_t hetcclSend(const void* sendbuff, size_t count, hetcclDataType_t datatype, int peer,
                          hetcclComm_t comm, hetcclStream_t stream) {
  return hetccl::capi::message(comm, true, sendbuff, count, datatype, peer, 0, stream);
}

hetcclResult_t hetcclRecv(void* recvbuff, size_t count, hetcclDataType_t datatype, int peer,
                          hetcclComm_t comm, hetcclStream_t stream) {
  return hetccl::capi::message(comm, false, recvbuff, count, datatype, peer, 0, stream);
}

hetcclResult_t hetcclSendTag(const void* sendbuff, size_t count, hetcclDataType_t datatype,
                             int peer, uint32_t tag, hetcclComm_t comm, hetcclStream_t stream) {
  return hetccl::capi::message(comm, true, sendbuff, count, datatype, peer, tag, stream);
}

hetcclResult_t hetcclRecvTag(void* recvbuff, size_t count, hetcclDataType_t datatype, int peer,
                             uint32_t tag, hetcclComm_t comm, hetcclStream_t stream) {
  return hetccl::capi::message(comm, false, recvbuff, count, datatype, peer, tag, stream);
}

hetcclResult_t hetcclRecvAny(void* recvbuff, size_t count, hetcclDataType_t datatype, uint32_t tag,
                             int* source, hetcclComm_t comm, hetcclStream_t stream) {
  return hetccl::capi::message(comm, false, recvbuff, count, datatype, hetccl::exec::kAnyRank, tag,
                               stream, source);
}

hetcclResult_t hetcclGroupStart() {
  return hetccl::capi::finished([] {
    hetccl::capi::Group::mine().start();
    return hetccl::Status();
  });
}

hetcclResult_t hetcclGroupEnd() {
  return hetccl::capi::finished([] { return hetccl::capi::Group::mine().end(); });
}
