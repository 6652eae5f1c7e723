#include "mpi/outcomes.h"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace hetccl::mpi::outcomes {
namespace {

struct All {
  std::mutex mutex;
  std::unordered_map<Word, std::shared_ptr<Outcome>> by_request;
  std::atomic<size_t> size{0};
};

All& all() {
  static auto* the = new All;  // leaked: the MPI may free requests at the very end
  return *the;
}

}  // namespace

bool exist() {
  return all().size.load(std::memory_order_acquire) > 0;
}

std::shared_ptr<Outcome> find(Word request) {
  All& the = all();
  const std::lock_guard lock(the.mutex);
  const auto place = the.by_request.find(request);
  return place == the.by_request.end() ? nullptr : place->second;
}

void add(Word request, std::shared_ptr<Outcome> outcome) {
  All& the = all();
  const std::lock_guard lock(the.mutex);
  the.by_request[request] = std::move(outcome);
  the.size.store(the.by_request.size(), std::memory_order_release);
}

void forget(Word request, const Outcome* outcome) {
  All& the = all();
  const std::lock_guard lock(the.mutex);
  const auto place = the.by_request.find(request);
  if (place == the.by_request.end() || place->second.get() != outcome) return;
  the.by_request.erase(place);
  the.size.store(the.by_request.size(), std::memory_order_release);
}

}  // namespace hetccl::mpi::outcomes
