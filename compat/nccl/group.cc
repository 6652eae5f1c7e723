#include "nccl/group.h"

#include <map>
#include <thread>
#include <utility>

#include "base/thread.h"
#include "nccl/vendor.h"

namespace hetccl::nccl {
namespace {

Outcome run_one(const std::function<Outcome()>& body) {
  try {
    return body();
  } catch (const std::exception&) {
    return {ncclInternalError, "no memory"};
  }
}

// Runs the creations one after the other; returns the first failure.
Outcome run_in_order(const std::vector<Creation>& creations) {
  Outcome first;
  for (const Creation& creation : creations) {
    Outcome outcome = run_one(creation.run);
    if (outcome.failed() && !first.failed()) first = std::move(outcome);
  }
  return first;
}

ncclResult_t worse(ncclResult_t a, ncclResult_t b) {
  const auto rank = [](ncclResult_t code) {
    return code == ncclSuccess ? 0 : code == ncclInProgress ? 1 : 2;
  };
  return rank(b) > rank(a) ? b : a;
}

}  // namespace

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

ncclResult_t Group::start() {
  if (VendorScope::holds()) return call_vendor<ncclResult_t()>(*vendor(), Symbol::ncclGroupStart);
  ++depth_;
  return ncclSuccess;
}

ncclResult_t Group::enter_vendor() {
  if (depth_ == 0 || VendorScope::holds() || std::exchange(begun_.vendor, true)) return ncclSuccess;
  return finish_vendor(call_vendor<ncclResult_t()>(*vendor(), Symbol::ncclGroupStart));
}

ncclResult_t Group::enter_mixed() {
  if (depth_ == 0 || std::exchange(begun_.mixed, true)) return ncclSuccess;
  return finish(outcome_of(hetcclGroupStart(), nullptr));
}

ncclResult_t Group::run(Creation creation) {
  if (depth_ > 0) {
    creations_.push_back(std::move(creation));
    return ncclSuccess;
  }
  if (creation.blocking) return finish(run_one(creation.run));
  std::vector<Creation> one;
  one.push_back(std::move(creation));
  return run_all(std::move(one));
}

ncclResult_t Group::end_after(std::function<Outcome()> action) {
  if (depth_ == 0) return finish(action());
  ends_.push_back(std::move(action));
  return ncclSuccess;
}

void Group::note_refusal(ncclResult_t code) {
  if (depth_ > 0 && refused_ == ncclSuccess) refused_ = code;
}

ncclResult_t Group::end() {
  if (VendorScope::holds()) return call_vendor<ncclResult_t()>(*vendor(), Symbol::ncclGroupEnd);
  if (depth_ == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth_ > 0) return ncclSuccess;
  const Libraries begun = std::exchange(begun_, {});
  const auto ends = std::exchange(ends_, {});
  ncclResult_t result =
      worse(std::exchange(refused_, ncclSuccess), run_all(std::exchange(creations_, {})));
  if (begun.vendor) {
    result =
        worse(result, finish_vendor(call_vendor<ncclResult_t()>(*vendor(), Symbol::ncclGroupEnd)));
  }
  if (begun.mixed) result = worse(result, finish(outcome_of(hetcclGroupEnd(), nullptr)));
  for (const auto& action : ends) result = worse(result, finish(run_one(action)));
  return result;
}

ncclResult_t Group::simulate_end(ncclSimInfo_t* info) {
  if (depth_ == 0) return refuse(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
  if (depth_ > 1) {
    --depth_;
    return ncclSuccess;
  }
  if (begun_.mixed || !creations_.empty() || !ends_.empty()) {
    return refuse(
        ncclInvalidUsage,
        "ncclGroupSimulateEnd cannot estimate a group that calls or makes a mixed communicator");
  }
  if (begun_.vendor && vendor()->find(Symbol::ncclGroupSimulateEnd) == nullptr)
    return refuse(ncclInvalidUsage, vendor()->path + " has no ncclGroupSimulateEnd");
  depth_ = 0;
  if (!std::exchange(begun_.vendor, false)) return ncclSuccess;
  return finish_vendor(
      call_vendor<ncclResult_t(ncclSimInfo_t*)>(*vendor(), Symbol::ncclGroupSimulateEnd, info));
}

// Runs each order in a thread of its own, so that ranks of one process do not wait for each other.
ncclResult_t Group::run_all(std::vector<Creation> creations) {
  struct Row {
    std::vector<Creation> creations;
    bool blocking = true;
    Outcome outcome;
    std::thread thread;
    ~Row() {
      if (thread.joinable()) thread.join();
    }
  };
  std::map<std::pair<const void*, size_t>, Row> rows;
  for (size_t i = 0; i < creations.size(); ++i) {
    Row& row = rows[{creations[i].order, creations[i].order == nullptr ? i + 1 : 0}];
    row.blocking = row.blocking && creations[i].blocking;
    row.creations.push_back(std::move(creations[i]));
  }
  ncclResult_t result = ncclSuccess;
  for (auto& [order, row] : rows) {
    Row* const place = row.blocking ? &row : nullptr;  // the row lives until the thread is joined
    auto thread = start_thread("hetccl-init", [creations = row.creations, place] {
      Outcome outcome = run_in_order(creations);
      if (place != nullptr) place->outcome = std::move(outcome);
    });
    if (!thread.ok())
      row.outcome = run_in_order(row.creations);  // in this thread, before the next one starts
    else if (row.blocking)
      row.thread = std::move(thread).value();
    else
      thread.value().detach();
    if (!row.blocking) result = worse(result, ncclInProgress);
  }
  for (auto& [order, row] : rows) {
    if (row.thread.joinable()) row.thread.join();
    if (row.outcome.failed()) result = worse(result, finish(row.outcome));
  }
  return result;
}

}  // namespace hetccl::nccl
