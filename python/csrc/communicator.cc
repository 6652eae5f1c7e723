#include "communicator.h"

#include <unistd.h>

#include <algorithm>

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
  // Unlocked: it waits for other ranks, and another thread may abort meanwhile.
  const hetcclConfig_t config = config_of(device, timeout, wire);
  hetcclComm_t made = nullptr;
  const hetcclResult_t result = hetcclCommSplit(comm, color, key, &made, &config);
  if (result != hetcclSuccess) return last_failure(result);
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

std::optional<Failure> Communicator::apply_timeout_locked(Milliseconds timeout) {
  if (timeout == timeout_) return std::nullopt;
  const hetcclResult_t result = hetcclCommSetTimeout(comm_, timeout.count());
  if (result != hetcclSuccess) return last_failure(result);
  timeout_ = timeout;
  return std::nullopt;
}

std::optional<Failure> Communicator::find_lane_locked(const Route& route, Lane*& lane) {
  lane = &lanes_[route];
  if (lane->stream != nullptr) return std::nullopt;
  const hetcclResult_t result = hetcclHostStreamCreate(&lane->stream);
  if (result == hetcclSuccess) return std::nullopt;
  lanes_.erase(route);
  return last_failure(result);
}

std::optional<Failure> Communicator::launch(const Launch& call, const Route& route,
                                            Milliseconds timeout, bool blocking, Ticket& ticket) {
  if (forked()) return forked_failure();
  for (;;) {
    Ticket oldest;
    {
      std::unique_lock lock(mutex_);
      if (const auto refusal = refusal_locked()) return refusal;
      Lane* lane = nullptr;
      if (const auto failure = find_lane_locked(route, lane)) return failure;
      uint64_t& slot = lane->tickets[lane->launched % kInFlight];
      oldest = {lane->stream, slot};
      if (lane->launched < kInFlight || reached(oldest)) {
        if (const auto failure = apply_timeout_locked(timeout)) return failure;
        if (blocking && reached(lane->last())) {
          // Another thread may abort meanwhile: a handle that is gone is an error like any other.
          hetcclComm_t comm = comm_;
          lock.unlock();
          const hetcclResult_t result = call(comm, nullptr);
          if (result != hetcclSuccess) return last_failure(result);
          return std::nullopt;
        }
        hetcclResult_t result = call(comm_, lane->stream);
        if (result == hetcclSuccess) result = hetcclHostStreamRecord(lane->stream, &slot);
        if (result != hetcclSuccess) return last_failure(result);
        ++lane->launched;
        ticket = lane->last();
        return std::nullopt;
      }
    }
    if (!wait(oldest, timeout)) {
      return Failure{hetcclTimeout, std::to_string(kInFlight) +
                                        " operations are in flight and the oldest did not end in " +
                                        std::to_string(timeout.count()) + " ms"};
    }
  }
}

std::optional<Failure> Communicator::enqueue(const Launch& call, hetcclStream_t stream,
                                             Milliseconds timeout) {
  if (forked()) return forked_failure();
  hetcclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto refusal = refusal_locked()) return refusal;
    if (const auto failure = apply_timeout_locked(timeout)) return failure;
    comm = comm_;
  }
  // Unlocked: it may wait for room, and another thread may abort meanwhile.
  const hetcclResult_t result = call(comm, stream);
  if (result != hetcclSuccess) return last_failure(result);
  return std::nullopt;
}

bool Communicator::is_capturing(hetcclStream_t stream) {
  if (forked()) return false;
  hetcclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    comm = comm_;
  }
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

std::optional<Failure> Communicator::failure() {
  if (forked()) return forked_failure();
  const std::lock_guard lock(mutex_);
  return failure_locked();
}

std::optional<Failure> Communicator::failure_locked() {
  if (failed_ || comm_ == nullptr) return failed_;
  hetcclResult_t result = hetcclSuccess;
  const hetcclResult_t asked = hetcclCommGetAsyncError(comm_, &result);
  if (asked != hetcclSuccess) return last_failure(asked);
  if (result == hetcclSuccess || result == hetcclInProgress) return std::nullopt;
  return Failure{result, hetcclGetLastError(comm_)};
}

std::optional<Failure> Communicator::refusal_locked() const {
  if (failed_ || comm_ != nullptr) return failed_;
  return Failure{hetcclInvalidUsage, "the process group has been destroyed; make a new one"};
}

void Communicator::close() {
  if (forked()) return;
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  failed_ = failure_locked();
  if (!failed_) {
    const hetcclResult_t result = hetcclCommDestroy(comm_);
    if (result != hetcclSuccess) failed_ = last_failure(result);
  } else {
    hetcclCommAbort(comm_);
  }
  comm_ = nullptr;
}

void Communicator::abort(const std::string& reason) {
  if (forked()) return;
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  failed_ = failure_locked();
  if (!failed_) failed_ = Failure{hetcclAborted, reason};
  hetcclCommAbort(comm_);
  comm_ = nullptr;
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
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return refusal_locked();
  out = {};
  out.size = sizeof(out);
  const hetcclResult_t result = hetcclCommGetStats(comm_, &out);
  if (result != hetcclSuccess) return last_failure(result);
  return std::nullopt;
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
