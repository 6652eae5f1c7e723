#include "comm/communicator.h"

#include <algorithm>
#include <iterator>

#include "bootstrap/inquest.h"

namespace hetccl::comm {
namespace {

constexpr size_t kLoggedClusters = 16;

// Returns "eth0 10.0.0.1 (25000 Mbit/s), eth1 10.0.1.1".
std::string cards_text(const std::vector<topology::Nic>& nics) {
  std::string text;
  for (const topology::Nic& nic : nics) {
    const std::string address = nic.address.substr(0, nic.address.rfind(':'));  // without the port
    text.append(text.empty() ? "" : ", ").append(nic.name + " " + address);
    if (nic.mbps > 0) text += format(" (%lld Mbit/s)", static_cast<long long>(nic.mbps));
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::create(Runtime& runtime,
                                                           const bootstrap::UniqueId& id,
                                                           CommunicatorOptions options) {
  HETCCL_ASSIGN(Making making, prepare(runtime, id, std::move(options)));
  HETCCL_TRY(making.run());
  return making.communicator();
}

Result<Making> Communicator::prepare(Runtime& runtime, const bootstrap::UniqueId& id,
                                     CommunicatorOptions options) {
  if (options.n_ranks < 1) {
    return error(ErrorCode::InvalidArgument, "nranks is %d: it must be at least 1",
                 options.n_ranks);
  }
  if (options.rank < 0 || options.rank >= options.n_ranks) {
    return error(ErrorCode::InvalidArgument, "rank is %d: it must be from 0 to %d", options.rank,
                 options.n_ranks - 1);
  }
  HETCCL_ASSIGN(const auto child, make(runtime, std::move(options)));
  Communicator* const self = child.get();  // the chore's own thread must not drop the last
                                           // reference
  return Making(child, nullptr, [self, id] { return self->open(id); });
}

Status Communicator::begin(const bootstrap::UniqueId& id) {
  if (blocking()) return open(id);
  return chores_.post([this, id] { static_cast<void>(open(id)); });
}

Result<std::shared_ptr<Communicator>> Communicator::make(Runtime& runtime,
                                                         CommunicatorOptions options) {
  HETCCL_ASSIGN(auto cancel, Cancel::create());
  // Resolve on the caller's thread, because "cuda" means its current device.
  options.device = runtime.resolve_device(options.device);
  return std::shared_ptr<Communicator>(
      new Communicator(runtime, std::move(options), std::move(cancel)));
}

// Marks the communicator as ended even if there is no memory for the reason, because callers poll
// for that.
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
    status = join(id);
    if (status.ok()) status = fabric_.open();
    if (status.ok()) status = dispatch_.open();
  } catch (...) {  // the others wait for this rank
    status = caught();
  }
  if (!status.ok()) return membership_.give_up(status);
  context_.phase = Phase::Ready;
  warn_of_layout();
  log_layout();
  const size_t clusters = membership_.topology().clusters().size();
  const Config& config = context_.config;
  const bool encodes = !config.wire.empty() || !config.wire_gather.empty();
  if (encodes && clusters == 1 && !config.wire_inside) {
    context_.log.info(
        "nothing is encoded: all ranks are in one cluster, and HETCCL_WIRE_INSIDE is 0");
  }
  return {};
}

// Rank 0 names the clusters; each rank its cards and the transports to ranks of other clusters.
void Communicator::log_layout() const {
  if (context_.log.level < LogLevel::Info) return;
  const auto& clusters = membership_.topology().clusters();
  const int rank = membership_.rank();
  context_.log.info("communicator of %d ranks in %zu clusters is ready", membership_.n_ranks(),
                    clusters.size());
  const size_t logged = rank == 0 ? std::min(clusters.size(), kLoggedClusters) : 0;
  for (size_t i = 0; i < logged; ++i) {
    const topology::Cluster& cluster = clusters[i];
    const topology::RankInfo& first = membership_.info(cluster.ranks.front());
    std::string label;
    if (!cluster.label.empty()) label = ", label " + cluster.label;
    context_.log.info("cluster %zu: %s, %s, library %s %s%s", i,
                      bootstrap::rank_list(cluster.ranks).c_str(), cluster.vendor.c_str(),
                      first.library.c_str(), first.library_version.c_str(), label.c_str());
  }
  if (logged > 0 && clusters.size() > logged) {
    context_.log.info("and %zu clusters more: hetccl topo shows them", clusters.size() - logged);
  }
  std::string ways;
  for (const auto& [name, peers] : fabric_.channels().by_transport()) {
    std::vector<int32_t> others;
    std::copy_if(peers.begin(), peers.end(), std::back_inserter(others),
                 [&](int peer) { return fabric_.channels().crosses(peer); });
    if (!others.empty()) ways += "; " + name + " to " + bootstrap::rank_list(others);
  }
  const topology::RankInfo& mine = membership_.info(rank);
  const std::string device = mine.bus_id.empty() ? mine.vendor : mine.vendor + " " + mine.bus_id;
  context_.log.info("device %s; cards: %s%s", device.c_str(), cards_text(mine.nics).c_str(),
                    ways.c_str());
}

void Communicator::warn_of_layout() const {
  const int rank = membership_.rank();
  if (rank == 0 && membership_.number() == 0 && membership_.topology().split_by_host()) {
    context_.log.warn(
        "HETCCL_ENCRYPT=1: each host's GPUs form a cluster of their own, since their vendor's "
        "library does not encrypt what it sends to other hosts; HETCCL_ALLOW_VENDOR_CLEARTEXT=1 "
        "on every rank allows that");
  }
  const int other = membership_.topology().shares_device(rank);
  if (other > rank && membership_.number() < 2) {  // both ranks may be in one process: log once
    context_.log.warn(
        "ranks %d and %d are threads of one process on one GPU, whose hardware queues their "
        "streams share: calls of one may wait for calls of the other, and end by time-out. Give "
        "each a process, or start this one with CUDA_DEVICE_MAX_CONNECTIONS=32 (AMD: "
        "GPU_MAX_HW_QUEUES=32)",
        rank, other);
  }
}

Status Communicator::join(const bootstrap::UniqueId& id) {
  bootstrap::JoinOptions join;
  join.on_failure = [this](const bootstrap::Failure& failure) {
    dispatch_.stop(Status(failure.code, failure.reason));
  };
  join.on_note = [this](int from, std::span<const uint8_t> note) {
    const bool mail = !note.empty() && note.front() == Mail::kMark;
    if (!note.empty() && note.front() == Gathering::kMark) {
      gathering_.on_note(from, note);
    } else if (mail) {  // may come before tuning exists
      if (Pairs* pairs = fabric_.pairs()) pairs->on_note(from, note);
    } else if (Tuning* tuning = dispatch_.tuning()) {
      tuning->on_note(from, note);
    }
  };
  join.on_left = [this](int who, uint64_t) {
    if (context_.phase == Phase::Opening) {  // a rank that is still setting up would wait in vain
      return context_.cancel->set(error(
          ErrorCode::RemoteError, "rank %d left while the communicator was being set up", who));
    }
    gathering_.on_left();
    if (Tuning* tuning = dispatch_.tuning()) tuning->on_left(who);
    if (Pairs* pairs = fabric_.pairs()) pairs->on_left(who);
  };
  join.position = [this](uint64_t sequence) { return dispatch_.position(sequence); };
  return membership_.join(id, std::move(join));
}

Communicator::~Communicator() {
  const Status why = error(ErrorCode::Aborted, "the communicator was destroyed");
  context_.cancel->set(why);
  chores_.wait();
  fabric_.stop();
  if (!dispatch_.idle()) dispatch_.stop(why);
  const bool ended = dispatch_.wait_until_idle();
  if (membership_.joined()) {
    membership_.session().leave(dispatch_.called());
    Channels::forget_visitors(context_.runtime, membership_.session());
  }
  dispatch_.write_trace();
  dispatch_.close(ended);
  fabric_.close(ended);
}

bool Communicator::in_progress() const {
  const Phase phase = context_.phase;
  return phase == Phase::Opening || phase == Phase::Finalizing;
}

Status Communicator::finish(TimePoint deadline) {
  if (context_.phase == Phase::Opening) {
    context_.cancel->set(
        error(ErrorCode::Aborted, "it destroyed the communicator while that was being set up"));
    chores_.wait();
    if (context_.phase != Phase::Ready) return {};
  }
  chores_.wait();
  return drain(deadline);
}

Status Communicator::drain(TimePoint deadline) {
  if (context_.phase == Phase::Closed) return dispatch_.failure();
  Status status = dispatch_.finish();
  fabric_.pairs()->stop(deadline);  // pairs agree by notes, which `leave` ends
  membership_.session().leave(dispatch_.called());
  return status;
}

Status Communicator::finalize() {
  HETCCL_TRY(dispatch_.check_ready());
  if (blocking()) return finish();
  context_.phase = Phase::Finalizing;
  const Status posted = chores_.post([this] { static_cast<void>(drain(TimePoint::max())); });
  return posted.ok() ? posted : finish();
}

void Communicator::shut_down(TimePoint deadline) {
  Verdict& verdict = membership_.verdict();
  auto& engine = context_.engine();
  const auto busy = [&] {
    const Phase phase = context_.phase;
    return phase == Phase::Opening || (phase != Phase::Closed && !dispatch_.idle());
  };
  engine.notify();
  engine.wait([&] { return !busy() || verdict.failed(); }, deadline);
  if (busy() || verdict.failed()) {
    abort("its process exited before the communicator's work was complete");
  } else {
    static_cast<void>(finish(deadline));
  }
  // A thread inside a vendor's library would crash at the end of the process.
  if (context_.phase == Phase::Closed && fabric_.pairs() != nullptr)
    fabric_.pairs()->stop(deadline);
  dispatch_.write_trace();
}

void Communicator::abort(const std::string& why) {
  if (context_.phase == Phase::Opening) {
    context_.cancel->set(Status(ErrorCode::Aborted, why));
    chores_.wait();
  }
  const Phase phase = context_.phase;
  if (phase == Phase::Opening || phase == Phase::Closed) return;
  const std::string cause = format("rank %d: %s", membership_.rank(), why.c_str());
  membership_.verdict().report(ErrorCode::Aborted, membership_.rank(), cause);
  // Close channels after the others know the cause: else they may report a lost connection first.
  membership_.verdict().wait(std::chrono::milliseconds(1000));
  dispatch_.stop(Status(ErrorCode::Aborted, cause));
  chores_.wait();
  // Return only when nothing in flight can touch the user's memory.
  dispatch_.wait_until_idle();
}

void Communicator::on_exception(const Status& why) {
  if (membership_.joined()) return dispatch_.report(membership_.rank(), why);
  membership_.verdict().replace(why);  // no other rank knows this communicator yet
  context_.phase = Phase::Closed;
}

}  // namespace hetccl::comm
