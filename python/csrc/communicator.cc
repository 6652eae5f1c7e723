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

}  // namespace

Failure last_failure(hetcclResult_t result) {
  const char* text = hetcclGetLastError(nullptr);
  if (text == nullptr || *text == '\0') text = hetcclGetErrorString(result);
  return {result, text};
}

std::shared_ptr<Communicator> Communicator::join(const hetcclUniqueId& id, int rank, int size,
                                                 Milliseconds timeout, Failure& failure) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.device = "host";
  config.timeout_ms = timeout.count();
  config.init_timeout_ms = timeout.count();
  hetcclComm_t comm = nullptr;
  hetcclResult_t result = hetcclCommInitRankConfig(&comm, size, id, rank, &config);
  if (result != hetcclSuccess) {
    failure = last_failure(result);
    return nullptr;
  }
  hetcclStream_t stream = nullptr;
  result = hetcclHostStreamCreate(&stream);
  if (result != hetcclSuccess) {
    failure = last_failure(result);
    hetcclCommAbort(comm);
    return nullptr;
  }
  return std::shared_ptr<Communicator>(new Communicator(comm, stream, timeout));
}

Communicator::Communicator(hetcclComm_t comm, hetcclStream_t stream, Milliseconds timeout)
    : comm_(comm), stream_(stream), owner_(getpid()), timeout_(timeout) {}

Communicator::~Communicator() {
  if (forked()) return;
  close();
  hetcclHostStreamDestroy(stream_);
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

std::optional<Failure> Communicator::launch(const Launch& call, Milliseconds timeout, bool blocking,
                                            uint64_t& ticket) {
  if (forked()) return forked_failure();
  for (;;) {
    uint64_t oldest = 0;
    {
      std::unique_lock lock(mutex_);
      if (const auto refusal = refusal_locked()) return refusal;
      uint64_t& slot = tickets_[launched_ % kInFlight];
      if (launched_ < kInFlight || reached(slot)) {
        if (const auto failure = apply_timeout_locked(timeout)) return failure;
        const bool idle = launched_ == 0 || reached(tickets_[(launched_ - 1) % kInFlight]);
        if (blocking && idle) {
          // Another thread may abort meanwhile: a handle that is gone is an error like any other.
          hetcclComm_t comm = comm_;
          lock.unlock();
          const hetcclResult_t result = call(comm, nullptr);
          if (result != hetcclSuccess) return last_failure(result);
          return std::nullopt;
        }
        hetcclResult_t result = call(comm_, stream_);
        if (result == hetcclSuccess) result = hetcclHostStreamRecord(stream_, &slot);
        if (result != hetcclSuccess) return last_failure(result);
        ticket = slot;
        ++launched_;
        return std::nullopt;
      }
      oldest = slot;
    }
    if (!wait(oldest, timeout)) {
      return Failure{hetcclTimeout,
                     std::to_string(kInFlight) +
                         " collectives are in flight and the oldest did not end in " +
                         std::to_string(timeout.count()) + " ms"};
    }
  }
}

bool Communicator::reached(uint64_t ticket) const {
  return hetcclHostStreamQuery(stream_, ticket) != hetcclInProgress;
}

bool Communicator::wait(uint64_t ticket, Milliseconds timeout) const {
  return hetcclHostStreamWait(stream_, ticket, timeout.count()) != hetcclTimeout;
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
  uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    if (launched_ > 0) last = tickets_[(launched_ - 1) % kInFlight];
  }
  if (last == 0 || wait(last, grace)) return close();
  abort("the process exited with collectives in flight");
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
  if (forked()) return forked_failure();
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return refusal_locked();
  const char* json = nullptr;
  const hetcclResult_t result = hetcclCommGetTopology(comm_, &json);
  if (result != hetcclSuccess) return last_failure(result);
  out = json;
  return std::nullopt;
}

}  // namespace hetccl::torch_backend
