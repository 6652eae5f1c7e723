#include "nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/thread.h"
#include "nccl/vendor.h"

namespace hetccl::nccl {
namespace {

constexpr std::chrono::microseconds kPollPause(200);
constexpr std::chrono::milliseconds kCancelPause(10);
constexpr size_t kLargestConfig = 4096;

const char* text_of(const char* text) {
  return text != nullptr ? text : "";
}

Outcome outcome_of_vendor(ncclResult_t code, ncclComm_t comm) {
  Outcome outcome{code, ""};
  if (!outcome.failed()) return outcome;
  if (vendor()->find(Symbol::ncclGetLastError) != nullptr) {
    outcome.text =
        text_of(call_vendor<const char*(ncclComm_t)>(*vendor(), Symbol::ncclGetLastError, comm));
  }
  return outcome;
}

// Copies a text and never frees the copy: the vendor's library keeps the pointer and hands it to
// communicators split from this one.
const char* keep(const char* text) {
  if (text == nullptr) return nullptr;
  static std::mutex mutex;
  static auto* const kept = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return kept->insert(text).first->c_str();
}

}  // namespace

Result<ConfigCopy> ConfigCopy::of(const ncclConfig_t* config) {
  ConfigCopy copy;
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  const std::string_view said = blocking != nullptr ? blocking : "";
  copy.blocking_ = said != "0";
  if (config == nullptr) return copy;
  constexpr size_t kLeast = offsetof(ncclConfig_t, trafficClass);  // the size in 2.18
  if (config->magic != NCCL_API_MAGIC || config->size < kLeast || config->size > kLargestConfig)
    return error(ErrorCode::InvalidArgument, "config was not made by NCCL_CONFIG_INITIALIZER");
  const auto* const first = reinterpret_cast<const uint8_t*>(config);
  copy.bytes_.assign(first, first + config->size);
  if (said != "0" && said != "1") copy.blocking_ = config->blocking != 0;
  copy.net_name_ = keep(config->netName);
  if (config->size >= sizeof *config) copy.comm_name_ = keep(config->commName);
  return copy;
}

ncclConfig_t* ConfigCopy::get() {
  if (bytes_.empty()) return nullptr;
  auto* const config = reinterpret_cast<ncclConfig_t*>(bytes_.data());
  config->netName = net_name_;
  if (bytes_.size() >= sizeof *config) config->commName = comm_name_;
  return config;
}

CurrentDevice CurrentDevice::of_this_thread() {
  CurrentDevice device;
  const device::gpu::Api* const runtime = gpu_runtime();
  if (runtime == nullptr) return device;
  if (runtime->get_context(&device.context_) != 0) device.context_ = nullptr;
  device.number_ = std::max(device::gpu::current_device(*runtime), 0);  // no device yet: device 0
  return device;
}

void CurrentDevice::make_current() const {
  if (context_ != nullptr) gpu_runtime()->set_context(context_);
}

void SplitOrder::Turn::end() {
  if (std::exchange(is_over_, true)) return;
  const std::lock_guard lock(order_.mutex_);
  order_.early_.insert(number_);
  while (order_.early_.erase(order_.first_) == 1) ++order_.first_;
  order_.over_.notify_all();
}

void SplitOrder::Turn::wait() {
  std::unique_lock lock(order_.mutex_);
  order_.over_.wait(lock, [this] { return order_.first_ == number_; });
}

std::unique_ptr<SplitOrder::Turn> SplitOrder::take() {
  const std::lock_guard lock(mutex_);
  return std::make_unique<Turn>(*this, taken_++);
}

Result<std::shared_ptr<Communicator>> Communicator::create() {
  std::shared_ptr<Communicator> made(new Communicator);
  HETCCL_ASSIGN(made->cancel_, Cancel::create());
  return made;
}

Communicator::~Communicator() = default;

Outcome Communicator::set_up(Handle& handle, Request request) {
  Outcome outcome{ncclInternalError, "no memory"};
  try {
    config_ = request.config;
    outcome = make(request);
  } catch (const std::exception&) {  // the members destroy what was made
  }
  return conclude(handle, std::move(outcome));
}

Outcome Communicator::conclude(Handle& handle, Outcome outcome) {
  {
    const std::lock_guard lock(mutex_);
    outcome_ = outcome;
  }
  const HandleState state = outcome.failed()           ? HandleState::Failed
                            : mixed_.load() != nullptr ? HandleState::Mixed
                                                       : HandleState::Vendor;
  publish(handle, this, state, vendor_.load(), mixed_.load());
  return outcome;
}

Outcome Communicator::make(Request& request) {
  auto met = Meeting::join(request.id, request.n_ranks, request.rank, *cancel_);
  if (!met.ok()) return outcome_of(met.status());
  {
    const std::lock_guard lock(mutex_);
    meeting_ = std::move(met).value();
    ranks_ = meeting_->describe();
  }
  log().info("rank %d of %d: %s", request.rank, request.n_ranks, ranks_.c_str());
  if (!meeting_->has_one_vendor()) return make_mixed(request);
  Outcome outcome = make_vendors(request);
  const std::lock_guard lock(mutex_);
  meeting_.reset();  // from here on only the vendor's library serves it
  return outcome;
}

// If rank 0 has failed to make an id, it shares no bytes, so that the other ranks do not wait for
// one.
template <typename Id>
Status Communicator::share(Id& id, const Outcome& made) {
  const auto* const first = reinterpret_cast<const uint8_t*>(id.internal);
  HETCCL_ASSIGN(
      const Bytes shared,
      meeting_->share_secret(made.failed() ? Bytes() : Bytes(first, first + sizeof id.internal)));
  if (shared.size() != sizeof id.internal)
    return error(ErrorCode::RemoteError, "rank 0 has no id to meet by: see its own error");
  std::memcpy(id.internal, shared.data(), sizeof id.internal);
  return {};
}

Outcome Communicator::make_vendors(const Request& request) {
  ncclUniqueId id{};
  Outcome made;
  if (request.rank == 0) {
    made = outcome_of_vendor(
        call_vendor<ncclResult_t(ncclUniqueId*)>(*vendor(), Symbol::ncclGetUniqueId, &id), nullptr);
  }
  const Status shared = share(id, made);
  if (made.failed()) return made;
  if (!shared.ok()) return outcome_of(shared);
  return init_vendors(id, request);
}

// A blocking init cannot be aborted: NCCL may not be called from another thread for a communicator
// that it is still making. So a thread of its own runs it, and an abort leaves that thread behind.
// Its communicator, if it makes one, is aborted at once.
Outcome Communicator::init_vendors(const ncclUniqueId& id, const Request& request) {
  struct Init {
    ConfigCopy config;
    std::mutex mutex;  // guards the members below
    std::condition_variable done;
    bool is_done = false, is_left = false;
    ncclComm_t made = nullptr;
    Outcome outcome;
  };
  const auto init = std::make_shared<Init>();
  init->config = config_;
  const auto run = [init, id, n_ranks = request.n_ranks, rank = request.rank] {
    using Call = ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
    ncclComm_t made = nullptr;
    const ncclResult_t code = call_vendor<Call>(*vendor(), Symbol::ncclCommInitRankConfig, &made,
                                                n_ranks, id, rank, init->config.get());
    Outcome outcome{code, {}};
    try {
      outcome = outcome_of_vendor(code, nullptr);
    } catch (const std::exception&) {  // no memory for the text
    }
    const std::lock_guard lock(init->mutex);
    if (made != nullptr && (outcome.failed() || init->is_left)) {
      call_vendor<ncclResult_t(ncclComm_t)>(*vendor(), Symbol::ncclCommAbort, made);
      made = nullptr;
    }
    init->made = made;
    init->outcome = std::move(outcome);
    init->is_done = true;
    init->done.notify_all();
  };
  auto thread = config_.blocking() ? start_thread("hetccl-vendor",
                                                  [run, device = device_] {
                                                    device.make_current();
                                                    run();
                                                  })
                                   : Result<std::thread>(std::thread());
  if (thread.ok() && thread->joinable())
    thread->detach();
  else
    run();
  std::unique_lock lock(init->mutex);
  while (!init->is_done && !cancel_->is_set()) init->done.wait_for(lock, kCancelPause);
  init->is_left = !init->is_done;
  if (init->is_left) return {ncclInternalError, "the communicator was aborted"};
  const std::lock_guard own(mutex_);
  if (aborted_ && init->made != nullptr) {
    call_vendor<ncclResult_t(ncclComm_t)>(*vendor(), Symbol::ncclCommAbort, init->made);
    return {ncclInternalError, "the communicator was aborted"};
  }
  vendor_.store(init->made);
  return init->outcome;
}

Outcome Communicator::make_mixed(const Request& request) {
  hetcclUniqueId id{};
  Outcome outcome;
  if (request.rank == 0) outcome = outcome_of(hetcclGetUniqueId(&id), nullptr);
  const Status shared = share(id, outcome);
  if (outcome.failed()) return outcome;
  if (!shared.ok()) return outcome_of(shared);

  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  // A GPU without a vendor's library becomes a cluster of its own; a thread without a GPU takes
  // part as the host.
  config.device = serving_vendor() != nullptr ? vendor()->device() : nullptr;
  config.blocking = 0;  // gives abort a handle from the start
  hetcclComm_t made = nullptr;
  const hetcclResult_t begun =
      hetcclCommInitRankConfig(&made, request.n_ranks, id, request.rank, &config);
  if (made == nullptr) return outcome_of(begun, nullptr);
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) {
      hetcclCommAbort(made);
      return {ncclInternalError, "the communicator was aborted"};
    }
    mixed_.store(made);
  }
  return wait_for_mixed();
}

// Waits until hetccl has made the communicator, or has failed or aborted it.
Outcome Communicator::wait_for_mixed() {
  const hetcclComm_t mixed = mixed_.load();
  hetcclResult_t result = hetcclInProgress;
  while (hetcclCommGetAsyncError(mixed, &result) == hetcclSuccess && result == hetcclInProgress)
    std::this_thread::sleep_for(kPollPause);
  if (cancel_->is_set()) return {ncclInternalError, "the communicator was aborted"};
  return outcome_of(result, mixed);
}

Outcome Communicator::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

Outcome Communicator::finalize() {
  const hetcclResult_t begun = hetcclCommFinalize(mixed_.load());
  const bool waits = begun == hetcclInProgress && config_.blocking();
  return waits ? wait_for_mixed() : outcome_of(begun, mixed_.load());
}

Outcome Communicator::destroy() {
  if (mixed_.load() != nullptr) return outcome_of(hetcclCommDestroy(mixed_.load()), nullptr);
  return outcome_of_vendor(
      call_vendor<ncclResult_t(ncclComm_t)>(*vendor(), Symbol::ncclCommDestroy, vendor_.load()),
      nullptr);
}

Outcome Communicator::abort() {
  cancel_->set(error(ErrorCode::Aborted, "the communicator was aborted"));
  ncclComm_t of_vendor = nullptr;
  hetcclComm_t of_hetccl = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(aborted_, true)) return {};
    of_vendor = vendor_.load();
    of_hetccl = mixed_.load();
  }
  if (of_hetccl != nullptr) return outcome_of(hetcclCommAbort(of_hetccl), nullptr);
  if (of_vendor == nullptr) return {};
  return outcome_of_vendor(
      call_vendor<ncclResult_t(ncclComm_t)>(*vendor(), Symbol::ncclCommAbort, of_vendor), nullptr);
}

std::shared_ptr<SplitOrder::Turn> Communicator::take_turn() {
  // Each turn keeps the communicator alive, since it refers to its SplitOrder.
  return {split_order_.take().release(),
          [self = shared_from_this()](SplitOrder::Turn* turn) { delete turn; }};
}

Result<std::optional<Meeting::Child>> Communicator::split(SplitOrder::Turn& turn, int color,
                                                          int key) {
  turn.wait();
  auto child = meeting_->split(color, key);
  turn.end();
  return child;
}

Result<Meeting::Child> Communicator::shrink(SplitOrder::Turn& turn, std::span<const int> excluded) {
  turn.wait();
  auto child = meeting_->shrink(excluded);
  turn.end();
  return child;
}

std::string Communicator::describe() const {
  const std::lock_guard lock(mutex_);
  return ranks_;
}

}  // namespace hetccl::nccl
