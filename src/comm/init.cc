// How a communicator comes to be: rendezvous, what carries its data, the executor; or how the other
// ranks learn why it does not.
#include <algorithm>

#include "comm/communicator.h"

namespace hetccl::comm {

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

// Who asks whether it goes on gets an end, even where there is no memory for a cause.
Status Communicator::open(const bootstrap::UniqueId& id) {
  try {
    return try_open(id);
  } catch (...) {
    membership_.verdict().settle_without_memory();
    context_.phase = Phase::Closed;
    throw;
  }
}

Status Communicator::try_open(const bootstrap::UniqueId& id) {
  context_.log.rank = membership_.rank();
  context_.runtime.warn_of_settings(membership_.rank(), id);
  Status status;
  try {
    status = open_parts(id);
  } catch (...) {  // the others wait for this rank
    status = caught();
  }
  if (!status.ok()) return close_unopened(status);
  context_.phase = Phase::Ready;
  warn_of_layout();
  const size_t clusters = membership_.topology().clusters().size();
  context_.log.info("communicator of %d ranks in %zu clusters is ready", membership_.n_ranks(),
                    clusters);
  const Config& config = context_.config;
  const bool encodes = !config.wire.empty() || !config.wire_gather.empty();
  if (encodes && clusters == 1 && !config.wire_inside) {
    context_.log.info(
        "nothing is encoded: all ranks are in one cluster, and HETCCL_WIRE_INSIDE is 0");
  }
  return {};
}

void Communicator::warn_of_layout() const {
  const int rank = membership_.rank();
  if (rank == 0 && membership_.number() == 0 && membership_.topology().split_by_host()) {
    context_.log.warn(
        "HETCCL_ENCRYPT=1: each host's GPUs form a cluster of their own, since their vendor's "
        "library does not encrypt what it sends to other hosts; HETCCL_ALLOW_VENDOR_CLEARTEXT=1 "
        "on every rank lets it");
  }
  const int other = membership_.topology().shares_device(rank);
  if (other > rank && membership_.number() < 2) {  // said once: the two may count in one process
    context_.log.warn(
        "ranks %d and %d are threads of one process on one GPU, whose hardware queues their "
        "streams share: calls of one may wait for calls of the other, and end by time-out. Give "
        "each a process, or start this one with CUDA_DEVICE_MAX_CONNECTIONS=32 (AMD: "
        "GPU_MAX_HW_QUEUES=32)",
        rank, other);
  }
}

Status Communicator::open_parts(const bootstrap::UniqueId& id) {
  HETCCL_TRY(join(id));
  HETCCL_TRY(fabric_.open());
  return dispatch_.open();
}

Status Communicator::join(const bootstrap::UniqueId& id) {
  bootstrap::JoinOptions join;
  join.on_failure = [this](const bootstrap::Failure& failure) {
    dispatch_.stop(Status(failure.code, failure.reason));
  };
  join.on_note = [this](int from, std::span<const uint8_t> note) {
    const bool mail = !note.empty() && note.front() == Mail::kMark;
    if (Pairs* pairs = fabric_.pairs(); mail && pairs != nullptr) pairs->on_note(from, note);
    if (Tuning* tuning = dispatch_.tuning(); !mail && tuning != nullptr)
      tuning->on_note(from, note);
  };
  join.on_left = [this](int who, uint64_t) { on_left(who); };
  join.position = [this](uint64_t sequence) { return dispatch_.position(sequence); };
  return membership_.join(id, std::move(join));
}

void Communicator::on_left(int rank) {
  if (context_.phase != Phase::Opening) {
    if (Tuning* tuning = dispatch_.tuning()) tuning->on_left(rank);
    if (Pairs* pairs = fabric_.pairs()) pairs->on_left(rank);
    return;
  }
  // A rank that is still setting up waits for it in vain.
  context_.cancel->set(
      error(Code::RemoteError, "rank %d left while the communicator was being set up", rank));
}

Status Communicator::close_unopened(const Status& cause) {
  Status told = membership_.give_up(cause);
  context_.phase = Phase::Closed;
  return told;
}

}  // namespace hetccl::comm
