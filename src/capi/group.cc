#include "capi/group.h"

#include <utility>

#include "capi/process.h"
#include "capi/ranges.h"

namespace hetccl::capi {

using comm::CollectiveArguments;
using comm::Communicator;
using exec::Message;

namespace {

std::vector<uint64_t> copy_of(std::span<const uint64_t> values) {
  return {values.begin(), values.end()};
}

}  // namespace

void Group::add(Communicator& communicator, const CollectiveArguments& arguments,
                hetcclStream_t stream) {
  const auto own = [](const exec::Layout& layout) {
    return OwnLayout{copy_of(layout.counts), copy_of(layout.offsets)};
  };
  collectives_.push_back({communicator.shared_from_this(), stream, arguments, own(arguments.input),
                          own(arguments.output)});
}

void Group::add(Communicator& communicator, std::span<const Message> messages,
                hetcclStream_t stream) {
  for (NotedMessages& exchange : messages_) {
    if (exchange.communicator.get() != &communicator || exchange.stream != stream) continue;
    exchange.messages.insert(exchange.messages.end(), messages.begin(), messages.end());
    return;
  }
  messages_.push_back(
      {communicator.shared_from_this(), stream, {messages.begin(), messages.end()}});
}

Status Group::end() {
  if (depth_ == 0) {
    return error(ErrorCode::InvalidUsage, "hetcclGroupEnd without hetcclGroupStart in this thread");
  }
  return --depth_ > 0 ? Status() : make({.refusal = "no call of the group was made"});
}

Status Group::make(const How& how) {
  size_t n_calls = collectives_.size();
  for (const NotedMessages& some : messages_) n_calls += some.messages.size();
  const Range range("group", n_calls);
  Group calls;
  calls.messages_.swap(messages_);
  calls.collectives_.swap(collectives_);
  HETCCL_TRY(calls.check().with(how.refusal));
  return calls.run(how);
}

Status Group::check() const {
  for (const NotedMessages& some : messages_)
    HETCCL_TRY(some.communicator->dispatch().check(some.call()));
  for (const NotedCollective& one : collectives_)
    HETCCL_TRY(one.communicator->dispatch().check(one.call()));
  return {};
}

Status Group::run(const How& how) const {
  struct Started {
    Communicator* communicator;
    exec::Ticket ticket;
  };
  std::vector<Started> started;
  Status first;
  const auto note = [&first](Status status) {
    if (first.ok()) first = std::move(status);
  };
  const auto start = [&](const auto& one) {
    const bool waits = how.tickets == nullptr;
    const auto ticket =
        one.communicator->dispatch().start(one.call(), {one.stream, how.timeout_ms, waits});
    if (!ticket.ok()) return note(ticket.status());
    if (!waits) how.tickets->push_back(ticket.value());
    if (waits && one.communicator->dispatch().is_no_stream(one.stream))
      started.push_back({one.communicator.get(), ticket.value()});
  };
  for (const NotedMessages& some : messages_) start(some);
  for (const NotedCollective& one : collectives_) start(one);
  for (const Started& one : started) note(one.communicator->dispatch().complete(one.ticket));
  return first;
}

Status outside_group(const char* function) {
  if (!Group::mine().is_open()) return {};
  return error(ErrorCode::InvalidUsage, "%s cannot be part of a group: call hetcclGroupEnd before",
               function);
}

}  // namespace hetccl::capi

hetcclResult_t hetcclGroupStart() {
  return hetccl::capi::finished([] {
    hetccl::capi::Group::mine().start();
    return hetccl::Status();
  });
}

hetcclResult_t hetcclGroupEnd() {
  return hetccl::capi::finished([] { return hetccl::capi::Group::mine().end(); });
}
