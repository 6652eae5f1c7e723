#include "capi/process.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/exception.h"
#include "base/thread.h"
#include "capi/endpoint.h"

namespace hetccl::capi {
namespace {

// Time that pending calls get when the process exits.
constexpr std::chrono::milliseconds kExitGrace(2000);
// Time without use after which a Runtime rests. Not at once, because a new group often follows an
// old one.
constexpr std::chrono::milliseconds kRestAfter(1000);
// Time that an exit waits for a Runtime that is about to rest.
constexpr std::chrono::milliseconds kExitPause(1000);

struct Process {
  std::mutex mutex;
  std::unique_ptr<comm::Runtime> runtime;
  bool watches_process = false;
  std::atomic<int64_t> leases{0};            // leaves 0 only under `mutex`
  std::atomic<bool> has_rest_thread{false};  // a thread waits to let the Runtime rest
  std::atomic<bool> exits{false};
  std::atomic<bool> used{false};    // a Runtime exists or is being made
  std::atomic<bool> forked{false};  // this process is the child of one that used hetccl

  std::shared_mutex handles_mutex;
  std::unordered_map<uintptr_t, std::shared_ptr<comm::Communicator>> handles;
  uintptr_t last_handle = 0;
  std::unordered_map<void*, Lease> streams;  // of the host device
};

// Leaked: the library's threads and handles may outlive static destruction.
Process& process() {
  static auto* instance = new Process;
  return *instance;
}

std::string& error_slot() {
  thread_local std::string text;
  return text;
}

// Returns false if the Runtime may still be in use.
bool try_to_rest() {
  Process& self = process();
  const std::lock_guard lock(self.mutex);
  if (self.leases.load() == 0 && !self.exits.load()) {
    if (!self.runtime->service().idle()) return false;
    self.runtime->rest();
  }
  self.has_rest_thread.store(false);
  return true;
}

// Called when the last lease ends. Starts a thread that runs until the Runtime rests or is used
// again.
void start_resting() {
  Process& self = process();
  if (self.forked.load() || self.has_rest_thread.exchange(true)) return;
  auto thread = start_thread("hetccl-rest", [] {
    do std::this_thread::sleep_for(kRestAfter);
    while (!try_to_rest());
  });
  if (thread.ok())
    thread->detach();
  else
    self.has_rest_thread.store(false);
}

// Waits until no Runtime is being closed: exit handlers would take away objects that it uses.
void await_rest() {
  Process& self = process();
  self.exits.store(true);
  const TimePoint end = steady_clock().now() + kExitPause;
  while (!self.mutex.try_lock()) {
    if (steady_clock().now() >= end) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  self.mutex.unlock();
}

// Tells the peers that this process ends, and waits until nothing uses its memory.
void at_exit() {
  static std::atomic<bool> done{false};  // at_exit may be registered twice
  if (done.exchange(true)) return;
  if (!process().forked.load()) await_rest();
  try {
    static_cast<void>(shut_down(kExitGrace));
  } catch (...) {  // out of memory: the peers see the connections close
  }
}

Status watch_process(Process& self) {
  if (self.watches_process) return {};
  const auto in_child = [] { process().forked.store(process().used.load()); };
  const int failed = pthread_atfork(nullptr, nullptr, in_child);
  if (failed != 0) return system_error("cannot watch for forks", failed);
  if (std::atexit(at_exit) != 0) return error(ErrorCode::SystemError, "cannot watch for exit");
  self.watches_process = true;
  return {};
}

Status no_communicator(hetcclComm_t handle) {
  if (handle == nullptr) return error(ErrorCode::InvalidArgument, "comm is null");
  return error(ErrorCode::InvalidArgument,
               "comm is no communicator: it was destroyed or never made");
}

hetcclResult_t result_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::Ok:
      return hetcclSuccess;
    case ErrorCode::InvalidArgument:
      return hetcclInvalidArgument;
    case ErrorCode::InvalidUsage:
      return hetcclInvalidUsage;
    case ErrorCode::SystemError:
      return hetcclSystemError;
    case ErrorCode::InternalError:
      return hetcclInternalError;
    case ErrorCode::RemoteError:
      return hetcclRemoteError;
    case ErrorCode::Timeout:
      return hetcclTimeout;
    case ErrorCode::Aborted:
      return hetcclAborted;
    case ErrorCode::Unsupported:
      return hetcclUnsupported;
  }
  return hetcclInternalError;
}

}  // namespace

Lease::Lease(comm::Runtime& runtime) : runtime_(&runtime) {
  process().leases.fetch_add(1);
}

Lease::Lease(const Lease& other) : Lease(*other.runtime_) {}

Lease& Lease::operator=(Lease other) noexcept {
  std::swap(runtime_, other.runtime_);
  return *this;
}

Lease::~Lease() {
  if (runtime_ != nullptr && process().leases.fetch_sub(1) == 1) start_resting();
}

// Called before any lock is taken: in a forked child a lock may be held for ever.
Status check_fork() {
  if (!process().forked.load(std::memory_order_relaxed)) return {};
  return error(ErrorCode::InvalidUsage,
               "hetccl was initialised before fork: use it in the parent alone, or start workers "
               "by spawn");
}

Result<Lease> runtime() {
  HETCCL_TRY(check_fork());
  Process& self = process();
  std::lock_guard lock(self.mutex);
  if (self.runtime != nullptr) {
    HETCCL_TRY(self.runtime->wake());
    return Lease(*self.runtime);
  }
  HETCCL_TRY(watch_process(self));
  HETCCL_ASSIGN(auto config, Config::from_environment());
  self.used.store(true);
  auto made = comm::Runtime::create(std::move(config));
  self.used.store(made.ok());
  HETCCL_ASSIGN(self.runtime, std::move(made));
  // Registers again, so that it runs before the vendor's own exit handler, which exists by now.
  self.runtime->when_first_gpu_opens([] { static_cast<void>(std::atexit(at_exit)); });
  return Lease(*self.runtime);
}

Result<hetcclStream_t> create_host_stream() {
  HETCCL_ASSIGN(Lease lease, runtime());
  HETCCL_ASSIGN(void* stream, lease->create_host_stream());
  Process& self = process();
  std::lock_guard lock(self.handles_mutex);
  self.streams.emplace(stream, std::move(lease));
  return static_cast<hetcclStream_t>(stream);
}

Status destroy_host_stream(hetcclStream_t stream) {
  HETCCL_ASSIGN(const Lease lease, runtime());
  HETCCL_TRY(lease->destroy_host_stream(stream));
  Process& self = process();
  std::lock_guard lock(self.handles_mutex);
  self.streams.erase(stream);
  return {};
}

Result<comm::Runtime*> runtime_of(hetcclStream_t stream) {
  HETCCL_TRY(check_fork());
  Process& self = process();
  {
    std::shared_lock lock(self.handles_mutex);
    const auto found = self.streams.find(stream);
    if (found != self.streams.end()) return &*found->second;
  }
  HETCCL_ASSIGN(const Lease lease, runtime());
  return lease->host_stream(stream).status();
}

hetcclComm_t adopt(std::shared_ptr<comm::Communicator> communicator, Lease lease) {
  communicator->hold(std::make_shared<const Lease>(std::move(lease)));
  Process& self = process();
  std::lock_guard lock(self.handles_mutex);
  self.handles.emplace(++self.last_handle, std::move(communicator));
  // A number, never dereferenced: a stale handle must be an error.
  return reinterpret_cast<hetcclComm_t>(self.last_handle);  // NOLINT(performance-no-int-to-ptr)
}

Result<std::shared_ptr<comm::Communicator>> find(hetcclComm_t handle) {
  HETCCL_TRY(check_fork());
  Process& self = process();
  std::shared_lock lock(self.handles_mutex);
  const auto found = self.handles.find(reinterpret_cast<uintptr_t>(handle));
  if (found == self.handles.end()) return no_communicator(handle);
  return found->second;
}

Result<std::shared_ptr<comm::Communicator>> release(hetcclComm_t handle) {
  HETCCL_TRY(check_fork());
  Process& self = process();
  std::lock_guard lock(self.handles_mutex);
  auto node = self.handles.extract(reinterpret_cast<uintptr_t>(handle));
  if (node.empty()) return no_communicator(handle);
  return std::move(node.mapped());
}

Result<std::vector<std::shared_ptr<comm::Communicator>>> all_communicators() {
  HETCCL_TRY(check_fork());
  Process& self = process();
  std::vector<std::shared_ptr<comm::Communicator>> communicators;
  std::shared_lock lock(self.handles_mutex);
  for (const auto& [handle, communicator] : self.handles) communicators.push_back(communicator);
  return communicators;
}

Status shut_down(std::chrono::milliseconds grace) {
  HETCCL_ASSIGN(const auto communicators, all_communicators());
  const TimePoint deadline = steady_clock().now() + grace;
  close_endpoints(deadline);
  if (communicators.empty()) return {};
  // Shuts all down at once, since one alone may wait seconds for peers that do not answer. An
  // exception stops neither the process nor the other communicators' shutdown.
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto end_next = [&] {
    for (size_t i = next++; i < communicators.size(); i = next++) {
      try {
        communicators[i]->shut_down(deadline);
      } catch (...) {
        failed = true;
      }
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(communicators.size());
  for (size_t i = 1; i < communicators.size(); ++i) {
    auto thread = start_thread("hetccl-exit", std::ref(end_next));
    if (!thread.ok()) break;  // the existing threads do the rest
    threads.push_back(std::move(thread).value());
  }
  end_next();
  for (std::thread& thread : threads) thread.join();
  communicators.front()->runtime().service().settle();
  if (failed) return error(ErrorCode::SystemError, "ending the communicators: out of memory");
  return {};
}

Status null(const char* argument) {
  return error(ErrorCode::InvalidArgument, "%s is null", argument);
}

hetcclResult_t finish(const Status& status) {
  if (!status.ok()) error_slot() = status.message();
  return result_of(status.code());
}

hetcclResult_t finish_exception() noexcept {
  try {
    return finish(caught());
  } catch (...) {  // out of memory for the text
    error_slot().clear();
    return hetcclSystemError;
  }
}

const std::string& last_error() {
  return error_slot();
}

hetcclResult_t in_progress_or(hetcclResult_t result, hetcclComm_t comm) {
  if (result != hetcclSuccess || comm == nullptr) return result;
  const auto found = find(comm);
  return found.ok() && !found.value()->blocking() ? hetcclInProgress : hetcclSuccess;
}

}  // namespace hetccl::capi
