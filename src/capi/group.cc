#include "capi/group.h"

#include <algorithm>
#include <cstddef>
#include <map>
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

Status Group::end(bool& goes_on) {
  if (depth_ == 0) {
    return error(ErrorCode::InvalidUsage, "hetcclGroupEnd without hetcclGroupStart in this thread");
  }
  if (--depth_ > 0) return {};
  goes_on = std::any_of(makings_.begin(), makings_.end(), [](const comm::Making& one) {
    const auto made = one.communicator();
    return made != nullptr && !made->blocking();
  });
  const Status made = make_communicators();
  constexpr const char* kRefusal = "no call of the group was made";
  if (made.ok()) return make({.refusal = kRefusal});
  const bool has_calls = !messages_.empty() || !collectives_.empty();
  drop_calls();
  return has_calls ? made.with(kRefusal) : made;
}

// Starts all before it waits for any: each waits for ranks that may also be this thread's.
Status Group::make_communicators() {
  std::vector<comm::Making> makings;
  makings.swap(makings_);
  if (!makings.empty()) HETCCL_TRY(check_fork());  // in a forked child the threads do not exist
  Status first;
  const auto note = [&first](Status status) {
    if (first.ok()) first = std::move(status);
  };
  std::vector<const comm::Making*> started;
  for (comm::Making& one : makings) {
    const Status status = one.start();
    if (status.ok()) {
      started.push_back(&one);
      continue;
    }
    one.give_up(status);
    note(status);
  }
  for (const comm::Making* one : started) note(one->wait());
  return first;
}

void Group::drop_calls() {
  messages_.clear();
  collectives_.clear();
}

Status Group::simulate(double& seconds) {
  if (depth_ == 0) {
    return error(ErrorCode::InvalidUsage,
                 "hetcclGroupSimulateEnd without hetcclGroupStart in this thread");
  }
  seconds = -1;
  if (--depth_ > 0) return {};
  std::vector<comm::Making> makings;
  makings.swap(makings_);
  const Status ended = error(ErrorCode::InvalidUsage,
                             "hetcclGroupSimulateEnd ended the group in which the communicator was "
                             "to be made: destroy it, and make it in another group");
  for (const comm::Making& one : makings) one.give_up(ended);
  Group calls;  // dropped at the end in any case
  calls.messages_.swap(messages_);
  calls.collectives_.swap(collectives_);
  auto predicted = makings.empty() ? calls.predict() : ended;
  HETCCL_ASSIGN(seconds, std::move(predicted));
  return {};
}

// Collectives of one communicator run one after the other; different communicators run at the same
// time.
Result<double> Group::predict() const {
  if (!messages_.empty()) {
    return error(ErrorCode::Unsupported,
                 "the group has sends or receives: how long these take is not predicted");
  }
  std::map<const Communicator*, double> each;
  double longest = 0;
  for (const NotedCollective& one : collectives_) {
    HETCCL_ASSIGN(const double seconds, one.communicator->dispatch().predict(one.call()));
    double& sum = each[one.communicator.get()];
    sum += seconds;
    longest = std::max(longest, sum);
  }
  return longest;
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
  bool goes_on = false;
  const auto result =
      hetccl::capi::finished([&] { return hetccl::capi::Group::mine().end(goes_on); });
  return result == hetcclSuccess && goes_on ? hetcclInProgress : result;
}

hetcclResult_t hetcclGroupSimulateEnd(hetcclSimInfo_t* info) {
  using namespace hetccl::capi;
  return finished([&]() -> hetccl::Status {
    double seconds = -1;
    const hetccl::Status status = Group::mine().simulate(seconds);
    if (info == nullptr) return null("info");
    if (info->size < sizeof(hetcclSimInfo_t)) {
      return hetccl::error(hetccl::ErrorCode::InvalidArgument,
                           "info->size is not sizeof(hetcclSimInfo_t)");
    }
    info->estimated_us = seconds < 0 ? -1 : seconds * 1e6;
    return status;
  });
}
