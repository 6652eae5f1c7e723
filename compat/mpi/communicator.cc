#include "mpi/communicator.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "mpi/guard.h"

namespace hetccl::mpi {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<Word, std::shared_ptr<Communicator>> all;
  std::atomic<uint64_t> epoch{1};  // grows when a communicator is removed
};

Registry& registry() {
  static auto* the = new Registry;  // MPI may free communicators after static destructors
  return *the;
}

// Most endpoints that one communicator reserves for persistent requests.
constexpr size_t kMostReserved = 64;

}  // namespace

Communicator* Communicator::find(Word comm, Job& job) {
  thread_local struct {
    Word comm = 0;
    uint64_t epoch = 0;
    Communicator* found = nullptr;
  } last;
  Registry& the = registry();
  const uint64_t epoch = the.epoch.load(std::memory_order_acquire);
  if (last.comm == comm && last.epoch == epoch) return last.found;
  std::shared_ptr<Communicator> found;
  {
    const std::lock_guard lock(the.mutex);
    auto place = the.all.find(comm);
    if (place != the.all.end()) found = place->second;
  }
  if (found == nullptr) found = add(comm, job);
  last = {comm, epoch, found.get()};
  return found.get();
}

// If several threads come first, one of them adds the communicator. Setting an attribute may make
// the MPI call `forget`, which locks the mutex, so the mutex is free by then.
std::shared_ptr<Communicator> Communicator::add(Word comm, Job& job) {
  static const int key = job.library().create_key(forget);
  Registry& the = registry();
  auto made = std::make_shared<Communicator>(comm, job);
  {
    const std::lock_guard lock(the.mutex);
    const auto [place, is_new] = the.all.try_emplace(comm, made);
    if (!is_new) return place->second;
  }
  job.library().set_attribute(comm, key, made.get());
  return made;
}

int Communicator::forget(Word comm, int, void*, void*) {
  return guarded([&] {
    Registry& the = registry();
    std::shared_ptr<Communicator> gone;
    const std::lock_guard lock(the.mutex);
    const auto place = the.all.find(mpi().handle(comm));
    if (place == the.all.end()) return 0;
    gone = std::move(place->second);  // keeps it alive for calls under way
    the.all.erase(place);
    the.epoch.fetch_add(1, std::memory_order_release);
    return 0;
  });
}

void Communicator::destroy_all() {
  Registry& the = registry();
  std::unordered_map<Word, std::shared_ptr<Communicator>> all;
  {
    const std::lock_guard lock(the.mutex);
    all.swap(the.all);
    the.epoch.fetch_add(1, std::memory_order_release);
  }
  all.clear();
}

Communicator::Communicator(Word comm, Job& job)
    : comm_(comm), job_(job), rank_(job.library().rank(comm)) {
  const Library& library = job.library();
  facts_.fill(kUnknown);
  shape_.size = library.size(comm);
  if (library.is_inter(comm)) {
    never_ = Reason::Communicator;
  } else if (shape_.size == 1) {
    never_ = Reason::Empty;
  } else if (const auto shape = job.shape_of(comm, shape_.size)) {
    shape_ = *shape;
  } else {
    never_ = Reason::Communicator;
  }
}

// Calls with one key usually come from one place in the program, so their buffers are of the same
// kind. If they are not, this rank copies its buffer.
size_t Communicator::key_of(const MpiCall& call, const Volume& volume) {
  const auto total = static_cast<uint64_t>(std::max<int64_t>(volume.total, 0));
  return static_cast<size_t>(call.collective) * kSizes + static_cast<size_t>(std::bit_width(total));
}

Routing Communicator::served_by_mpi(Reason reason, Volume volume) const {
  return {.decision = {Algorithm::Beta}, .reason = reason, .volume = volume};
}

Question Communicator::question_of(const MpiCall& call, const Volume& volume) const {
  // Only the root knows whether a reduce or gather is in place, and in MPI_Reduce_scatter ranks
  // without elements need not pass MPI_IN_PLACE. All ranks must ask the rules the same question.
  const bool everywhere =
      call.collective != Collective::Reduce && call.collective != Collective::ReduceScatter &&
      call.collective != Collective::Gather && call.collective != Collective::Gatherv;
  return {.collective = call.collective,
          .nonblocking = call.form != Form::Blocking,
          .in_place = everywhere && call.send.in_place,
          .multithreaded = job_.multithreaded(),
          .maker = job_.library().maker,
          .average_bytes = volume.average,
          .total_bytes = volume.total,
          .count = volume.count,
          .shape = shape_};
}

int Communicator::facts_of(const MpiCall& call) const {
  if (call.collective == Collective::Barrier) return 0;
  return (memory_of(call, rank_).on_host() ? 0 : kOnDevice) |
         (is_contiguous(call, rank_, job_.library()) ? 0 : kWithGaps);
}

Decision Communicator::decide(Question question, int facts) const {
  question.device = (facts & kOnDevice) != 0;
  question.shares_gpus = question.device && shares_gpus_;
  return job_.decide(question);
}

const Communicator::Decided& Communicator::decide(const Question& question) {
  Decided& known = decided_[static_cast<size_t>(question.collective)];
  if (!known.is_known || known.question != question || job_.is_forced()) {
    known = {question, decide(question, 0), decide(question, kOnDevice), !job_.is_forced()};
  }
  return known;
}

void Communicator::want(size_t key, const Question& question, const MpiCall& call) {
  for (Wanted& wanted : wanted_) {
    if (wanted.key != key) continue;
    wanted.facts |= facts_of(call);
    return;
  }
  const MemorySpace memory = memory_of(call, rank_);
  if (!memory.on_host() && device_place_.on_host()) {
    device_place_ = {MemorySpace::Kind::Device, memory.gpu};
  }
  wanted_.push_back({key, question, facts_of(call)});
}

// Combines the facts of all ranks. `wanted_` holds the same kinds of calls, in the same order, on
// every rank.
void Communicator::agree() {
  std::vector<int> bits;
  bits.reserve(wanted_.size());
  for (const Wanted& wanted : wanted_) bits.push_back(wanted.facts);
  job_.library().combine(bits.data(), static_cast<int>(bits.size()), comm_);
  const std::vector<Wanted> agreed = std::exchange(wanted_, {});
  for (size_t i = 0; i < bits.size(); ++i) {
    if (facts_[agreed[i].key] == kUnknown) facts_[agreed[i].key] = static_cast<int8_t>(bits[i]);
    const Decision decision = decide(agreed[i].question, bits[i]);
    if (decision.by_hetccl() && (bits[i] & kWithGaps) == 0) {
      connect((bits[i] & kOnDevice) != 0, decision.communicators, true);
    }
  }
}

Result<std::unique_ptr<Endpoint>> Communicator::make_endpoint(MemorySpace place) {
  auto made = Endpoint::create(comm_, place, job_.library());
  if (!made.ok() && job_.is_protected()) {
    job_.log().error(
        "hetccl cannot serve a communicator of %d ranks, and the MPI does not keep what "
        "HETCCL_ENCRYPT and HETCCL_SECRET_FILE promise: %s",
        shape_.size, made.status().message().c_str());
    job_.library().abort(1);
  }
  return made;
}

bool Communicator::connect(bool on_device, int count, bool may_wait) {
  auto& list = endpoints_[on_device ? 1 : 0];
  bool& broken = broken_[on_device ? 1 : 0];
  while (!broken && static_cast<int>(list.size()) < count) {
    if (!may_wait) return false;
    // All endpoints of a list use one memory space, since one call may use several endpoints.
    const MemorySpace first = on_device ? device_place_ : MemorySpace{};
    auto made = make_endpoint(list.empty() ? first : list.front()->place());
    if (!made.ok()) {
      broken = true;
      job_.log().warn("MPI serves a communicator of %d ranks alone: %s", shape_.size,
                      made.status().message().c_str());
    } else {
      list.push_back(std::move(made).value());
      if (list.back()->shares_gpus() && !shares_gpus_) {
        shares_gpus_ = true;
        decided_ = {};  // rules may depend on it
      }
    }
  }
  return !broken;
}

// Each rank releases endpoints in its own order, so the ranks agree on one that is free on all of
// them.
Endpoint* Communicator::reserve(const Routing& routing) {
  const size_t kind = routing.endpoints == &endpoints_[1] ? 1 : 0;
  auto& list = reserved_[kind];
  int used[kMostReserved / 32] = {};
  {
    const std::lock_guard lock(reserved_mutex_);
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].in_use) used[i / 32] |= 1 << (i % 32);
    }
  }
  job_.library().combine(used, std::size(used), comm_);
  size_t free = 0;
  while (free < list.size() && (used[free / 32] >> (free % 32) & 1) != 0) ++free;
  if (free == kMostReserved) return nullptr;
  if (free == list.size()) {
    auto made = make_endpoint(routing.endpoints->front()->place());
    if (!made.ok()) return nullptr;
    const std::lock_guard lock(reserved_mutex_);
    list.push_back({std::move(made).value(), false});
  }
  const std::lock_guard lock(reserved_mutex_);
  list[free].in_use = true;
  return list[free].endpoint.get();
}

void Communicator::release(Endpoint* endpoint) {
  const std::lock_guard lock(reserved_mutex_);
  for (auto& list : reserved_) {
    for (Reserved& reserved : list) {
      if (reserved.endpoint.get() == endpoint) reserved.in_use = false;
    }
  }
}

Routing Communicator::route(const MpiCall& call) {
  if (never_ != Reason::Hetccl) return served_by_mpi(never_, {});
  const Library& library = job_.library();
  const Volume volume = volume_of(call, shape_.size, rank_, library);
  if (volume.total == 0 && call.collective != Collective::Barrier) {
    return served_by_mpi(Reason::Empty, volume);
  }
  // The MPI reports a bad root.
  if (call.root < 0 || call.root >= shape_.size) return served_by_mpi(Reason::Rule, volume);
  const auto reduction = reduces(call.collective) ? reduction_of(call, library) : std::nullopt;
  if (reduces(call.collective) && !reduction) return served_by_mpi(Reason::Operator, volume);
  if (call.send.in_place &&
      (call.collective == Collective::Alltoall || call.collective == Collective::Alltoallv)) {
    return served_by_mpi(Reason::InPlace, volume);
  }
  const Question question = question_of(call, volume);
  const Decided decided = decide(question);
  const bool may_wait = call.form != Form::Nonblocking;
  const bool alike = decided.on_host == decided.on_device && !decided.on_host.by_hetccl();
  if (alike && (wanted_.empty() || !may_wait)) {
    return {.decision = decided.on_host, .volume = volume};
  }
  const int8_t& facts = facts_[key_of(call, volume)];
  if (facts == kUnknown) want(key_of(call, volume), question, call);
  const bool shared = shares_gpus_;
  if (!wanted_.empty() && may_wait) agree();
  if (shared != shares_gpus_) return route(call);  // rules may depend on it
  if (facts == kUnknown) return served_by_mpi(Reason::NotYet, volume);
  const bool device = (facts & kOnDevice) != 0;
  Routing routing{.decision = device ? decided.on_device : decided.on_host, .volume = volume};
  if (!routing.decision.by_hetccl()) return routing;
  if ((facts & kWithGaps) != 0) return served_by_mpi(Reason::Gaps, volume);
  if (device && reduction && !reduces_on_devices(*reduction)) {
    return served_by_mpi(Reason::Operator, volume);
  }
  const bool connected = connect(device, routing.decision.communicators, may_wait);
  if (shared != shares_gpus_) return route(call);
  if (!connected) {
    return served_by_mpi(broken_[device ? 1 : 0] ? Reason::NoEndpoint : Reason::NotYet, volume);
  }
  routing.reason = Reason::Hetccl;
  routing.endpoints = &endpoints_[device ? 1 : 0];
  return routing;
}

Composition& Communicator::composition() {
  if (composition_ == nullptr) {
    const int node = job_.node_of(job_.log().rank);
    composition_ = std::make_unique<Composition>(comm_, node, job_.library());
  }
  return *composition_;
}

}  // namespace hetccl::mpi
