// How a communicator comes to be: rendezvous, agreement, topology, cluster library, channels,
// executor.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/cores.h"
#include "base/numa.h"
#include "comm/communicator.h"
#include "comm/probe.h"
#include "hetccl/hetccl.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

namespace {

Config settings_of(Config config, const CommunicatorOptions& options) {
  config.wire = options.wire.value_or(config.wire);
  config.wire_gather = options.wire_gather.value_or(config.wire_gather);
  config.wire_inside = options.wire_inside.value_or(config.wire_inside);
  return config;
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::create(Runtime& runtime,
                                                           const bootstrap::UniqueId& id,
                                                           CommunicatorOptions options) {
  if (options.n_ranks < 1) {
    return error(Code::InvalidArgument, "nranks is %d: it must be at least 1", options.n_ranks);
  }
  if (options.rank < 0 || options.rank >= options.n_ranks) {
    return error(Code::InvalidArgument, "rank is %d: it must be from 0 to %d", options.rank,
                 options.n_ranks - 1);
  }
  HETCCL_ASSIGN(auto communicator, make(runtime, std::move(options)));
  if (communicator->blocking()) {
    HETCCL_TRY(communicator->open(id));
  } else {
    auto* self = communicator.get();
    HETCCL_TRY(self->chores_.post([self, id] { static_cast<void>(self->open(id)); }));
  }
  return communicator;
}

Result<std::shared_ptr<Communicator>> Communicator::make(Runtime& runtime,
                                                         CommunicatorOptions options) {
  HETCCL_ASSIGN(auto cancel, Cancel::create());
  // Here, on the caller's thread, whose device "cuda" means.
  options.device = runtime.resolve_device(options.device);
  return std::shared_ptr<Communicator>(
      new Communicator(runtime, std::move(options), std::move(cancel)));
}

Communicator::Communicator(Runtime& runtime, CommunicatorOptions options,
                           std::unique_ptr<Cancel> cancel)
    : runtime_(runtime),
      options_(std::move(options)),
      config_(settings_of(runtime.config(), options_)),
      rank_(options_.rank),
      n_ranks_(options_.n_ranks),
      log_(runtime.log()),
      cancel_(std::move(cancel)),
      red_ops_(runtime.red_op_numbers()),
      verdict_(runtime.engine(), log_, milliseconds(config_.liveness_ms + 1000)),
      number_(runtime.count_communicator()) {
  if (!config_.trace.empty()) tracer_ = std::make_unique<exec::Tracer>();
  const int64_t timeout = options_.timeout_ms > 0 ? options_.timeout_ms : config_.timeout_ms;
  timeout_ms_.store(timeout);
  int64_t init_ms =
      options_.init_timeout_ms > 0 ? options_.init_timeout_ms : config_.init_timeout_ms;
  if (options_.init_limit_ms > 0) init_ms = std::min(init_ms, options_.init_limit_ms);
  init_deadline_ = runtime.engine().clock().now() + milliseconds(init_ms);
}

int64_t Communicator::init_left_ms() const {
  const auto left = init_deadline_ - runtime_.engine().clock().now();
  return std::max<int64_t>(std::chrono::duration_cast<milliseconds>(left).count(), 1);
}

// Who asks whether it goes on gets an end, even where there is no memory for a cause.
Status Communicator::open(const bootstrap::UniqueId& id) {
  try {
    return try_open(id);
  } catch (...) {
    verdict_.settle_without_memory();
    phase_.store(Phase::Closed, std::memory_order_release);
    throw;
  }
}

Status Communicator::try_open(const bootstrap::UniqueId& id) {
  log_.rank = rank();
  runtime_.warn_of_settings(rank(), id);
  Status status;
  try {
    status = open_parts(id);
  } catch (...) {  // the others wait for this rank
    status = caught();
  }
  if (!status.ok()) return close_unopened(std::move(status));
  phase_.store(Phase::Ready, std::memory_order_release);
  warn_of_layout();
  log_.info("communicator of %d ranks in %zu clusters is ready", n_ranks(),
            topology().clusters().size());
  const bool encodes = !config_.wire.empty() || !config_.wire_gather.empty();
  if (encodes && topology().clusters().size() == 1 && !config_.wire_inside)
    log_.info("nothing is encoded: all ranks are in one cluster, and HETCCL_WIRE_INSIDE is 0");
  return {};
}

void Communicator::warn_of_layout() const {
  if (rank() == 0 && number_ == 0 && topology().split_by_host()) {
    log_.warn(
        "HETCCL_ENCRYPT=1: each host's GPUs form a cluster of their own, since their vendor's "
        "library does not encrypt what it sends to other hosts; HETCCL_ALLOW_VENDOR_CLEARTEXT=1 "
        "on every rank lets it");
  }
  const int other = topology().shares_device(rank());
  if (other > rank() && number_ < 2) {  // said once: the two may count in one process
    log_.warn(
        "ranks %d and %d are threads of one process on one GPU, whose hardware queues their "
        "streams share: calls of one may wait for calls of the other, and end by time-out. Give "
        "each a process, or start this one with CUDA_DEVICE_MAX_CONNECTIONS=32 (AMD: "
        "GPU_MAX_HW_QUEUES=32)",
        rank(), other);
  }
}

Status Communicator::open_parts(const bootstrap::UniqueId& id) {
  HETCCL_TRY(join(id));
  HETCCL_ASSIGN(device_, runtime_.device(options_.device));
  HETCCL_TRY(exchange_cards());
  HETCCL_TRY(open_cluster().with("opening the cluster's library"));
  HETCCL_TRY(channels_->open([this] { return init_limit(); }).with("connecting to other clusters"));
  HETCCL_TRY(open_executor());
  HETCCL_TRY(open_pairs());
  HETCCL_TRY(measure());  // nobody is through with it before all have come
  runtime_.engine().exclusively([&] { channels_->attach(*executor_); });
  return {};
}

// The others wait for this rank: tells them why it does not come, and returns what all are told.
Status Communicator::close_unopened(Status cause) {
  if (cancel_->is_set()) cause = cancel_->reason();
  if (session_ != nullptr) {
    // It may be how another rank's end looks from here, of which the coordinator is about to tell.
    if (cause.code() == Code::RemoteError || cause.code() == Code::SystemError)
      verdict_.wait(Verdict::kNewsTime);
    if (!verdict_.failed()) {
      verdict_.report(cause.code(), rank(), format("rank %d: %s", rank(), cause.message().c_str()));
    }
    cause = verdict_.await();  // which names its rank
  } else if (rank() >= 0) {    // else it has no place yet, and the ranks of the split are named
    cause = cause.with(format("rank %d of %d", rank(), n_ranks()));
  }
  verdict_.replace(cause);  // what the ranks agreed on is this communicator's failure too
  phase_.store(Phase::Closed, std::memory_order_release);
  return cause;
}

Status Communicator::join(const bootstrap::UniqueId& id) {
  bootstrap::JoinOptions join;
  join.rank = rank();
  join.n_ranks = n_ranks();
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  join.description = format("host %s, pid %d", name, getpid());
  join.timeout_ms = init_left_ms();
  join.cancel = cancel_.get();
  join.on_failure = [this](const bootstrap::Failure& failure) { on_failure(failure); };
  join.on_note = [this](int from, std::span<const uint8_t> note) {
    const bool mail = !note.empty() && note.front() == Mail::kMark;
    if (mail && pairs_ != nullptr) pairs_->on_note(from, note);
    if (!mail && tuning_ != nullptr) tuning_->on_note(from, note);
  };
  join.on_left = [this](int who, uint64_t called) { on_left(who, called); };
  join.position = [this](uint64_t sequence) { return position(sequence); };
  HETCCL_ASSIGN(session_, runtime_.service().join(id, std::move(join)));
  verdict_.join(*session_);
  return {};
}

Status Communicator::exchange_cards() {
  Card mine;
  mine.version = HETCCL_VERSION_CODE;
  mine.agreed = config_.agreed();
  mine.cores = list_of_cores();
  HETCCL_ASSIGN(const auto* library, runtime_.library(*device_, init_limit()));
  HETCCL_ASSIGN(mine.info,
                probe(rank(), *device_, *library, config_, options_.host_id, options_.cluster));
  mine.info.shared_memory = runtime_.shares_memory();
  WindowBudget::Share share;
  if (mine.info.shared_memory) share = runtime_.windows().take(*device_);
  mine.info.window_bytes = static_cast<int64_t>(Channels::window_bytes(share));
  for (const auto& listening : runtime_.listening()) {
    mine.addresses[listening.transport->name()] = listening.address;
  }
  HETCCL_ASSIGN(const auto encoded, session_->all_gather(encode(mine), init_left_ms()));
  auto read = runtime_.introductions().read(session_->communicator(), encoded);
  if (!read.ok()) {  // every rank finds the same, and the text names those whom it is about
    verdict_.report(read.status().code(), -1, read.status().message());
    return read.status();
  }
  introduction_ = std::move(*read);
  channels_ =
      std::make_unique<Channels>(Channels::Environment{runtime_, *session_, *introduction_,
                                                       *device_, *cancel_, departures_, verdict_},
                                 std::move(share));
  share_cores();
  return {};
}

void Communicator::share_cores() {
  const topology::RankInfo& mine = topology().infos()[static_cast<size_t>(rank())];
  if (!mine.host_access) return;
  const auto [all, bound] = introduction_->sharers(rank());
  runtime_.share_cores(bound, all);
}

Status Communicator::open_cluster() {
  HETCCL_ASSIGN(auto* library, runtime_.library(*device_, init_limit()));
  const auto& cluster = topology().clusters()[static_cast<size_t>(topology().cluster_of(rank()))];
  const int local = topology().local_rank(rank());
  const int n_local = static_cast<int>(cluster.ranks.size());
  ccl::UniqueId id;
  std::vector<uint8_t> mine;
  if (local == 0) {
    HETCCL_ASSIGN(id, library->unique_id(n_local, init_limit()));
    mine.assign(std::begin(id.bytes), std::end(id.bytes));
  }
  const auto ids = session_->all_gather(mine, init_left_ms());
  if (!ids.ok()) {
    if (local == 0) library->forget(id);
    return ids.status();
  }
  const auto& bytes = ids.value()[static_cast<size_t>(cluster.ranks[0])];
  if (bytes.size() != sizeof id.bytes) {
    return error(Code::RemoteError, "rank %d sent a malformed cluster id", cluster.ranks[0]);
  }
  std::memcpy(id.bytes, bytes.data(), bytes.size());
  HETCCL_ASSIGN(ccl_, library->init(id, n_local, local, &runtime_.engine().waker(), init_limit()));
  return {};
}

// What every executor of this communicator has in common.
exec::ExecutorOptions Communicator::executor_options() {
  exec::ExecutorOptions options;
  options.clock = &runtime_.engine().clock();
  options.device = device_;
  options.ccl = ccl_.get();
  options.library = topology().infos()[static_cast<size_t>(rank())].library;
  options.collectives = session_->communicator();
  options.messages = Channels::messages_number(*session_);
  options.rank = rank();
  options.n_ranks = n_ranks();
  options.local_rank = topology().local_rank(rank());
  options.on_published = on_published();
  options.on_fault = [this](const exec::Fault& fault) { on_fault(fault); };
  return options;
}

// A launch on a GPU may block until messages have moved, which nobody else would see to.
std::function<void()> Communicator::on_published() {
  if (!on_device()) return {};
  return [this] { runtime_.engine().notify(true); };
}

Status Communicator::open_executor() {
  // Most launches find what they need there, and ask no driver, which may wait for the device, and
  // so for ranks that wait for this one.
  if (topology().clusters().size() > 1) {
    HETCCL_TRY(device_->reserve(size_t{64} << 20U, size_t{32} << 20U));
  }
  exec::ExecutorOptions options = executor_options();
  options.topology = &topology();
  options.recorder = &recorder_;
  options.message_recorder = &message_recorder_;
  options.tracer = tracer_.get();
  options.departures = &departures_;
  options.departure_grace = milliseconds(config_.liveness_ms);
  options.windows = channels_->has_windows();
  options.on_timed = [this](uint64_t sequence, Duration took, TimePoint end) {
    tuning_->on_timed(sequence, took, end);
  };
  if (on_device() && topology().clusters().size() == 1) {
    HETCCL_ASSIGN(options.settler, runtime_.settler());
  }
  HETCCL_ASSIGN(own_stream_, device_->create_stream());
  user_streams_ = std::make_unique<UserStreams>(runtime_, *device_);
  HETCCL_ASSIGN(auto executor, exec::Executor::create(std::move(options)));
  runtime_.engine().exclusively([&] { executor_ = std::move(executor); });
  const auto on_exception = [this](const Status& why) { this->on_exception(why); };
  runtime_.engine().add(*executor_, on_exception);
  return {};
}

Status Communicator::open_pairs() {
  HETCCL_ASSIGN(auto* library, runtime_.library(*device_, init_limit()));
  HETCCL_ASSIGN(auto pairs, Pairs::create({runtime_, *session_, *device_, *library, *channels_,
                                           verdict_, log_, *executor_}));
  runtime_.engine().exclusively([&] { pairs_ = std::move(pairs); });
  return {};
}

}  // namespace hetccl::comm
