#include "communicator.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hetccl::torch_backend {
namespace {

/// A forked child answers before it takes a lock, which may be held for ever there.
Failure forked_failure() {
  return {hetcclInvalidUsage,
          "this process was forked from a rank and is none itself; communicate in the parent, or "
          "start ranks by multiprocessing's \"spawn\" or \"forkserver\""};
}

hetcclConfig_t config_of(const std::string& device, Communicator::Milliseconds timeout,
                         const Wire& wire) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.device = device.c_str();
  config.timeout_ms = timeout.count();
  config.init_limit_ms = timeout.count();
  if (wire.sums) config.wire = wire.sums->c_str();
  if (wire.gathers) config.wire_gather = wire.gathers->c_str();
  if (wire.inside) config.wire_inside = *wire.inside ? 1 : 0;
  return config;
}

}  // namespace

Failure last_failure(hetcclResult_t result) {
  const char* text = hetcclGetLastError(nullptr);
  if (text == nullptr || *text == '\0') text = hetcclGetErrorString(result);
  return {result, text};
}

std::shared_ptr<Communicator> Communicator::join(const hetcclUniqueId& id, int rank, int size,
                                                 const std::string& device, Milliseconds timeout,
                                                 const Wire& wire, Failure& failure) {
  const hetcclConfig_t config = config_of(device, timeout, wire);
  hetcclComm_t comm = nullptr;
  hetcclResult_t result = hetcclCommInitRankConfig(&comm, size, id, rank, &config);
  if (result != hetcclSuccess) {
    failure = last_failure(result);
    return nullptr;
  }
  return std::shared_ptr<Communicator>(new Communicator(comm, timeout));
}

std::optional<Failure> Communicator::split(int color, int key, const std::string& device,
                                           Milliseconds timeout, const Wire& wire,
                                           std::shared_ptr<Communicator>& child) {
  if (forked()) return forked_failure();
  hetcclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto refusal = refusal_locked()) return refusal;
    comm = comm_;
  }
  const hetcclConfig_t config = config_of(device, timeout, wire);
  hetcclComm_t made = nullptr;
  const hetcclResult_t result = hetcclCommSplit(comm, color, key, &made, &config);
  if (const auto failure = end_call(result)) return failure;
  if (made != nullptr) child.reset(new Communicator(made, timeout));
  return std::nullopt;
}

Communicator::Communicator(hetcclComm_t comm, Milliseconds timeout)
    : comm_(comm), owner_(getpid()), timeout_(timeout) {}

Communicator::~Communicator() {
  if (forked()) return;
  close();
  for (const auto& [route, lane] : lanes_) hetcclHostStreamDestroy(lane.stream);
}

bool Communicator::forked() const {
  return getpid() != owner_;
}

hetcclComm_t Communicator::handle() {
  const std::lock_guard lock(mutex_);
  return comm_;
}

// Between this and the call another thread may set another deadline: the C API takes none by call.
std::optional<Failure> Communicator::begin_call(Milliseconds timeout, hetcclComm_t& comm) {
  const std::lock_guard lock(mutex_);
  if (const auto refusal = refusal_locked()) return refusal;
  comm = comm_;
  if (timeout == timeout_) return std::nullopt;
  const hetcclResult_t result = hetcclCommSetTimeout(comm_, timeout.count());
  if (result != hetcclSuccess) return last_failure(result);
  timeout_ = timeout;
  return std::nullopt;
}

// A handle that went meanwhile says less than whoever made it go.
std::optional<Failure> Communicator::end_call(hetcclResult_t result) {
  if (result == hetcclSuccess) return std::nullopt;
  Failure own = last_failure(result);
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return refusal_locked();
  return own;
}

std::optional<Failure> Communicator::find_lane(const Route& route, Lane*& lane) {
  const std::lock_guard lock(mutex_);
  if (const auto refusal = refusal_locked()) return refusal;
  lane = &lanes_[route];
  if (lane->stream != nullptr) return std::nullopt;
  const hetcclResult_t result = hetcclHostStreamCreate(&lane->stream);
  if (result == hetcclSuccess) return std::nullopt;
  lanes_.erase(route);
  return last_failure(result);
}

std::optional<Failure> Communicator::wait_for_room(const Lane& lane, Milliseconds timeout) {
  Ticket oldest;
  {
    const std::lock_guard lock(mutex_);
    oldest = lane.oldest();
  }
  if (wait(oldest, timeout)) return std::nullopt;
  return Failure{hetcclTimeout, std::to_string(kInFlight) +
                                    " operations are in flight and the oldest did not end in " +
                                    std::to_string(timeout.count()) + " ms"};
}

std::optional<Failure> Communicator::launch(const Launch& call, const Route& route,
                                            Milliseconds timeout, bool blocking, Ticket& ticket) {
  if (forked()) return forked_failure();
  Lane* lane = nullptr;
  if (const auto failure = find_lane(route, lane)) return failure;
  std::unique_lock order(lane->order);
  if (const auto failure = wait_for_room(*lane, timeout)) return failure;
  hetcclComm_t comm = nullptr;
  if (const auto failure = begin_call(timeout, comm)) return failure;
  if (blocking) {
    const std::lock_guard lock(mutex_);
    blocking = reached(lane->last());
  }
  if (blocking) {
    order.unlock();
    return end_call(call(comm, nullptr));
  }
  hetcclResult_t result = call(comm, lane->stream);
  uint64_t number = 0;
  if (result == hetcclSuccess) result = hetcclHostStreamRecord(lane->stream, &number);
  if (const auto failure = end_call(result)) return failure;
  const std::lock_guard lock(mutex_);
  lane->tickets[lane->launched++ % kInFlight] = number;
  ticket = lane->last();
  return std::nullopt;
}

std::optional<Failure> Communicator::enqueue(const Launch& call, hetcclStream_t stream,
                                             Milliseconds timeout) {
  if (forked()) return forked_failure();
  hetcclComm_t comm = nullptr;
  if (const auto failure = begin_call(timeout, comm)) return failure;
  return end_call(call(comm, stream));
}

bool Communicator::is_capturing(hetcclStream_t stream) {
  if (forked()) return false;
  const hetcclComm_t comm = handle();
  int capturing = 0;
  return comm != nullptr && hetcclCommIsCapturing(comm, stream, &capturing) == hetcclSuccess &&
         capturing != 0;
}

bool Communicator::reached(const Ticket& ticket) {
  return ticket.number == 0 ||
         hetcclHostStreamQuery(ticket.stream, ticket.number) != hetcclInProgress;
}

bool Communicator::wait(const Ticket& ticket, Milliseconds timeout) {
  return ticket.number == 0 ||
         hetcclHostStreamWait(ticket.stream, ticket.number, timeout.count()) != hetcclTimeout;
}

bool Communicator::wait_all(const std::vector<Ticket>& tickets, Milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  return std::all_of(tickets.begin(), tickets.end(), [&](const Ticket& ticket) {
    if (timeout.count() < 0) return wait(ticket, timeout);
    const auto left =
        std::chrono::duration_cast<Milliseconds>(end - std::chrono::steady_clock::now());
    return wait(ticket, std::max(left, Milliseconds(0)));
  });
}

// Asking may wait for the ranks' agreement on a failure.
std::optional<Failure> Communicator::failure() {
  if (forked()) return forked_failure();
  hetcclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || comm_ == nullptr) return failed_;
    comm = comm_;
  }
  hetcclResult_t result = hetcclSuccess;
  const hetcclResult_t asked = hetcclCommGetAsyncError(comm, &result);
  if (asked == hetcclSuccess && (result == hetcclSuccess || result == hetcclInProgress))
    return std::nullopt;
  Failure found = last_failure(asked == hetcclSuccess ? result : asked);
  const std::lock_guard lock(mutex_);
  if (failed_ || comm_ == nullptr) return failed_;
  return found;
}

std::optional<Failure> Communicator::refusal_locked() const {
  if (failed_ || (comm_ != nullptr && !closing_)) return failed_;
  return Failure{hetcclInvalidUsage, "the process group has been destroyed; make a new one"};
}

// The handle stays while this waits, so that an abort can end the wait.
void Communicator::close() {
  if (forked()) return;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
  }
  std::optional<Failure> failed = failure();
  const hetcclComm_t comm = handle();
  if (!failed && comm != nullptr) {
    const hetcclResult_t result = hetcclCommFinalize(comm);
    if (result != hetcclSuccess) failed = last_failure(result);
  }
  end(std::move(failed));
}

void Communicator::abort(const std::string& reason) {
  if (forked()) return;
  std::optional<Failure> failed = failure();
  if (!failed) failed = Failure{hetcclAborted, reason};
  end(std::move(failed));
}

// Where another thread ends it already, this one waits for that.
void Communicator::end(std::optional<Failure> failed) {
  const std::lock_guard end_lock(end_mutex_);
  const bool aborts = failed.has_value();
  hetcclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    comm = std::exchange(comm_, nullptr);
    failed_ = std::move(failed);
  }
  aborts ? hetcclCommAbort(comm) : hetcclCommDestroy(comm);
}

void Communicator::close_within(Milliseconds grace) {
  if (forked()) return;
  std::vector<Ticket> last;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    for (const auto& [route, lane] : lanes_) last.push_back(lane.last());
  }
  if (wait_all(last, grace)) return close();
  abort("the process exited with operations in flight");
}

std::optional<Failure> Communicator::stats(hetcclCommStats_t& out) {
  if (forked()) return forked_failure();
  hetcclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return refusal_locked();
    comm = comm_;
  }
  out = {};
  out.size = sizeof(out);
  return end_call(hetcclCommGetStats(comm, &out));
}

std::optional<Failure> Communicator::topology(std::string& out) {
  return tell(hetcclCommGetTopology, out);
}

std::optional<Failure> Communicator::tuning(std::string& out) {
  return tell(hetcclCommGetTuning, out);
}

std::optional<Failure> Communicator::tell(Teller teller, std::string& out) {
  if (forked()) return forked_failure();
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return refusal_locked();
  const char* json = nullptr;
  const hetcclResult_t result = teller(comm_, &json);
  if (result != hetcclSuccess) return last_failure(result);
  out = json;
  return std::nullopt;
}

}  // namespace hetccl::torch_backend
