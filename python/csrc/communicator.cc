#include "communicator.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hetccl::torch_backend {
namespace {

/// Checked before any lock: in a forked child a lock may be held for ever.
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
  return std::shared_ptr<Communicator>(new Communicator(comm));
}

std::optional<Failure> Communicator::split(int color, int key, const std::string& device,
                                           Milliseconds timeout, const Wire& wire,
                                           std::shared_ptr<Communicator>& child) {
  const hetcclConfig_t config = config_of(device, timeout, wire);
  hetcclComm_t made = nullptr;
  const auto failure =
      with([&](hetcclComm_t comm) { return hetcclCommSplit(comm, color, key, &made, &config); });
  if (failure) return failure;
  if (made != nullptr) child.reset(new Communicator(made));
  return std::nullopt;
}

Communicator::Communicator(hetcclComm_t comm) : comm_(comm), owner_(getpid()) {}

Communicator::~Communicator() {
  close();
}

bool Communicator::forked() const {
  return getpid() != owner_;
}

hetcclComm_t Communicator::handle() {
  const std::lock_guard lock(mutex_);
  return comm_;
}

std::optional<Failure> Communicator::begin_call(hetcclComm_t& comm) {
  const std::lock_guard lock(mutex_);
  comm = comm_;
  return refusal_locked();
}

// If another thread has ended the communicator meanwhile, its reason says more than this call's
// error.
std::optional<Failure> Communicator::end_call(hetcclResult_t result) {
  if (result == hetcclSuccess) return std::nullopt;
  Failure own = last_failure(result);
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return refusal_locked();
  return own;
}

std::optional<Failure> Communicator::start(const std::vector<ApiCall>& calls, hetcclStream_t stream,
                                           Milliseconds timeout, hetcclWork_t* work) {
  std::vector<hetcclCall_t> all;
  all.reserve(calls.size());
  for (const ApiCall& call : calls) all.push_back(call.get());
  return with([&](hetcclComm_t comm) {
    return hetcclStart(all.data(), all.size(), comm, stream, timeout.count(), work);
  });
}

std::optional<Failure> Communicator::with(const std::function<hetcclResult_t(hetcclComm_t)>& use) {
  if (forked()) return forked_failure();
  hetcclComm_t comm = nullptr;
  if (const auto refusal = begin_call(comm)) return refusal;
  return end_call(use(comm));
}

bool Communicator::is_capturing(hetcclStream_t stream) {
  if (forked()) return false;
  const hetcclComm_t comm = handle();
  int capturing = 0;
  return comm != nullptr && hetcclCommIsCapturing(comm, stream, &capturing) == hetcclSuccess &&
         capturing != 0;
}

bool Communicator::reached(const hetcclWork_t& work) {
  return hetcclWorkQuery(&work) != hetcclInProgress;
}

bool Communicator::wait_all(const std::vector<hetcclWork_t>& works, Milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  return std::all_of(works.begin(), works.end(), [&](const hetcclWork_t& work) {
    Milliseconds left = timeout;
    if (timeout.count() >= 0) {
      left = std::chrono::duration_cast<Milliseconds>(end - std::chrono::steady_clock::now());
      left = std::max(left, Milliseconds(0));
    }
    return hetcclWorkWait(&work, left.count()) != hetcclTimeout;
  });
}

// hetcclCommGetAsyncError may wait until the ranks agree on a failure, so no lock is held.
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

// Keeps the handle while it waits, so that an abort can end the wait.
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

// If another thread is ending the communicator, waits for it.
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
  const hetcclComm_t comm = handle();
  if (comm == nullptr) return;
  if (hetcclCommWait(comm, grace.count()) != hetcclTimeout) return close();
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
