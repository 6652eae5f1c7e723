#include "monitored_barrier.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "meeting.h"

namespace hetccl::torch_backend {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = MonitoredBarrier::Milliseconds;

constexpr const char* kDecision = "decision";
/// Prefix of values: some Stores keep no empty value.
constexpr const char* kArrived = "1";
/// Time that rank 0 may answer after its own deadline.
constexpr Milliseconds kSlack{2000};

}  // namespace

MonitoredBarrier::MonitoredBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   uint64_t session)
    : store_(std::move(store)), rank_(rank), size_(size), session_(session) {}

void MonitoredBarrier::pass(Milliseconds timeout, bool name_all) {
  const uint64_t round = rounds_++;
  store_->set(key(round, std::to_string(rank_)), kArrived);
  const std::string missing =
      rank_ == 0 ? decide(round, timeout, name_all) : await_decision(round, timeout);
  TORCH_CHECK_WITH(DistBackendError, missing.empty(), "hetccl: monitored_barrier ", round,
                   " on rank ", rank_, ": ", missing);
}

std::string MonitoredBarrier::key(uint64_t round, const std::string& name) const {
  return c10::str("hetccl/monitored_barrier/", session_, "/", round, "/", name);
}

bool MonitoredBarrier::comes(const std::string& key, Milliseconds timeout) {
  try {
    store_->wait({key}, std::max(timeout, Milliseconds(1)));
    return true;
  } catch (const std::exception&) {
    return store_->check({key});  // throws if the cause was not the timeout
  }
}

std::string MonitoredBarrier::decide(uint64_t round, Milliseconds timeout, bool name_all) {
  const auto deadline = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (name_all || missing.empty()); ++rank) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    if (!comes(key(round, std::to_string(rank)), left)) missing.push_back(rank);
  }
  std::string text;
  for (const int rank : missing) text += c10::str(text.empty() ? "rank " : ", rank ", rank);
  if (!text.empty()) text += c10::str(" did not come within ", timeout.count(), " ms");
  store_->set(key(round, kDecision), kArrived + text);
  for (int rank = 0; rank < size_; ++rank) forget(*store_, {key(round, std::to_string(rank))});
  // A rank that is in this round has read the previous round's decision.
  if (text.empty() && round > 0) forget(*store_, {key(round - 1, kDecision)});
  return text;
}

std::string MonitoredBarrier::await_decision(uint64_t round, Milliseconds timeout) {
  const std::string decision = key(round, kDecision);
  if (comes(decision, timeout + kSlack)) return store_->get_to_str(decision).substr(1);
  const char* what = store_->check({key(round, "0")}) ? "rank 0 came, but has not decided yet"
                                                      : "rank 0 did not come";
  return c10::str(what, " within ", timeout.count(), " ms");
}

}  // namespace hetccl::torch_backend
