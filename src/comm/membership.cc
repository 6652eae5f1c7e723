#include "comm/membership.h"

#include <unistd.h>

#include "base/cores.h"
#include "hetccl/hetccl.h"

namespace hetccl::comm {

Membership::Membership(Context& context)
    : context_(context),
      rank_(context.options.rank),
      n_ranks_(context.options.n_ranks),
      number_(context.runtime.count_communicator()),
      verdict_(context.engine(), context.log,
               std::chrono::milliseconds(context.config.liveness_ms + 1000)) {}

Status Membership::join(const bootstrap::UniqueId& id, bootstrap::JoinOptions join) {
  join.rank = rank();
  join.n_ranks = n_ranks();
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  join.description = format("host %s, pid %d", name, getpid());
  join.timeout_ms = context_.init_left_ms();
  join.cancel = context_.cancel.get();
  join.on_left = [this, then = std::move(join.on_left)](int who, uint64_t called) {
    departures_.add(who, called);
    then(who, called);
  };
  HETCCL_ASSIGN(session_, context_.runtime.service().join(id, std::move(join)));
  verdict_.join(*session_);
  return {};
}

Status Membership::introduce(const device::Device& device, const ccl::Library& library,
                             size_t window_bytes) {
  Runtime& runtime = context_.runtime;
  Card mine;
  mine.version = HETCCL_VERSION_CODE;
  mine.agreed = context_.config.agreed();
  mine.cores = list_of_cores();
  HETCCL_ASSIGN(mine.info, probe(rank(), device, library, context_.config, context_.options.host_id,
                                 context_.options.cluster));
  mine.info.shared_memory = runtime.shares_memory();
  mine.info.window_bytes = static_cast<int64_t>(window_bytes);
  for (const auto& listening : runtime.listening()) {
    mine.addresses[listening.transport->name()] = listening.address;
  }
  HETCCL_ASSIGN(const auto encoded, session_->all_gather(encode(mine), context_.init_left_ms()));
  auto read = runtime.introductions().read(session_->communicator(), encoded);
  if (!read.ok()) {  // every rank finds the same error, whose text names the ranks
    verdict_.report(read.status().code(), -1, read.status().message());
    return read.status();
  }
  introduction_ = std::move(*read);
  if (info(rank()).host_access) {
    const auto [all, bound] = introduction_->sharers(rank());
    runtime.share_cores(bound, all);
  }
  return {};
}

Result<std::vector<std::string>> Membership::exchange(std::string_view mine) {
  HETCCL_ASSIGN(const auto all,
                session_->all_gather({mine.begin(), mine.end()}, context_.init_left_ms()));
  std::vector<std::string> told;
  for (const auto& bytes : all) told.emplace_back(bytes.begin(), bytes.end());
  return told;
}

Status Membership::share(const std::vector<topology::Measurement>& mine) {
  HETCCL_ASSIGN(const auto all, exchange(mine.empty() ? "" : topology::to_json(mine)));
  for (size_t who = 0; who < all.size(); ++who) {
    if (all[who].empty()) continue;
    const auto theirs = topology::measurements_from_json(all[who], topology());
    if (!theirs.ok()) return theirs.status().with(format("rank %zu", who));
    measured_.insert(measured_.end(), theirs.value().begin(), theirs.value().end());
  }
  return {};
}

Status Membership::give_up(Status cause) {
  if (context_.cancel->is_set()) cause = context_.cancel->reason();
  if (joined()) {
    // It may be an effect of another rank's end, which the coordinator is about to report.
    if (cause.code() == ErrorCode::RemoteError || cause.code() == ErrorCode::SystemError)
      verdict_.wait(Verdict::kNewsTime);
    if (!verdict_.failed()) {
      verdict_.report_own(rank(), cause);
    }
    cause = verdict_.await();  // names its rank
  } else if (rank() >= 0) {    // else it has no rank yet, and the ranks of the split are named
    cause = cause.with(format("rank %d of %d", rank(), n_ranks()));
  }
  verdict_.replace(cause);  // the agreed cause is this communicator's failure too
  context_.phase = Phase::Closed;
  return cause;
}

const std::string& Membership::topology_json() const {
  std::call_once(topology_text_made_, [this] {
    const auto measured = topology().with(measured_);
    topology_text_ = measured.ok() ? measured.value().to_json() : topology().to_json();
  });
  return topology_text_;
}

}  // namespace hetccl::comm
