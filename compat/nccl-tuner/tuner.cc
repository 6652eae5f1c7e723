#include "nccl-tuner/tuner.h"

#include <unistd.h>

#include <exception>
#include <mutex>
#include <utility>

#include "base/config.h"

namespace hetccl::nccl_tuner {
namespace {

// State that the communicators of a process share. A unique id serves one session: that of the
// first communicator with all ranks of the job.
struct Process {
  std::mutex mutex;  // held while ranks join: other communicators wait for the agreement
  pid_t owner = getpid();
  bool has_joined = false;
  bool has_communicators = false;  // of several ranks
  tune::Knowledge agreed;          // the part of the file that all ranks use
};

Process& process() {
  static auto* const the = new Process;  // leaked: threads may run at exit
  return *the;
}

// Returns true once per process: NCCL makes a tuner for each communicator.
bool claim_warnings() {
  static std::atomic<bool> claimed = false;
  return !claimed.exchange(true);
}

bool is_nccl(const tune::Setting& setting) {
  return setting.algorithm == tune::vendor_setting({}).algorithm;
}

}  // namespace

Tuner::Tuner(const Communicator& communicator, LogFunction log)
    : communicator_(communicator), log_(log) {
  try {
    const Status started = start();
    if (!started.ok()) stop(started.message().c_str());
  } catch (const std::exception& failure) {
    stop(failure.what());
  }
}

Tuner::~Tuner() {
  try {
    if (online_ != nullptr) file_->add(online_->learnt());
  } catch (const std::exception& failure) {
    stop(failure.what());
  }
}

Status Tuner::start() {
  HETCCL_ASSIGN(const Config config, Config::from_environment());
  const auto job = job_rank();  // NCCL does not pass the rank to its tuners
  if (claim_warnings()) config.warn(job ? job->rank : -1);
  keeps_bits_ = config.tune_bits == "keep";
  if (communicator_.n_ranks < 2 || config.deterministic) {
    active_ = false;
    return {};
  }
  file_ = std::make_unique<TuneFile>(
      config.tune_file, fingerprint_of(communicator_.n_ranks, communicator_.n_nodes), log_);
  const bool whole_job = job && static_cast<uint64_t>(job->n_ranks) == communicator_.n_ranks;
  Process& shared = process();
  const std::lock_guard lock(shared.mutex);
  if (std::exchange(shared.owner, getpid()) != getpid()) {  // a forked child has joined no session
    shared.has_joined = shared.has_communicators = false;
    shared.agreed = {};
  }
  const bool is_first = !std::exchange(shared.has_communicators, true);
  if (!config.tuner_id.empty()) {
    if (whole_job && !std::exchange(shared.has_joined, true))
      return join(config, job->rank, is_first);
    add_learnt(shared.agreed, "the ranks have agreed on");
  } else if (config.tune == "frozen") {
    add_learnt(read_once(config.tune_file, log_), config.tune_file.c_str());
  } else if (!config.tune_file.empty()) {
    log_.info(
        "HETCCL_TUNE_FILE is not used: set HETCCL_TUNE=frozen, or HETCCL_TUNER_ID, to use it");
  }
  return {};
}

void Tuner::add_learnt(const tune::Knowledge& knowledge, const char* from) {
  for (const tune::Learnt& one :
       knowledge.find(fingerprint_of(communicator_.n_ranks, communicator_.n_nodes)))
    if (is_nccl(one.setting)) known_[one.key] = one.setting.resources;
  if (!known_.empty()) log_.info(format("%zu settings of %s", known_.size(), from));
}

// Joins the search. The other ranks may have other settings: a rank that cannot agree with them
// uses NCCL's choices.
Status Tuner::join(const Config& config, int rank, bool is_first) {
  const bool searches = config.tune != "frozen";
  Online::Options options;
  options.rank = rank;
  options.n_ranks = static_cast<int>(communicator_.n_ranks);
  options.facts = format("communicator %llx of %llu ranks on %llu nodes, bits %s, %s",
                         static_cast<unsigned long long>(communicator_.id),
                         static_cast<unsigned long long>(communicator_.n_ranks),
                         static_cast<unsigned long long>(communicator_.n_nodes),
                         config.tune_bits.c_str(), searches ? "searched" : "frozen");
  options.is_first = is_first;
  if (rank == 0) {
    const tune::Knowledge& read = read_once(config.tune_file, log_);
    options.known = read.find(fingerprint_of(communicator_.n_ranks, communicator_.n_nodes));
    options.file = text_for_all(read, Online::kMostFile, log_);
  }
  options.log = log_;
  HETCCL_ASSIGN(auto online, Online::join(config, std::move(options)));
  process().agreed = online->agreed();
  if (!searches) {
    add_learnt(process().agreed, "the ranks have agreed on");
    return {};
  }
  online_ = std::move(online);
  log_.info(format("searches while the job runs, as rank %d", rank));
  return {};
}

plan::Resources Tuner::choose(int function, uint64_t bytes, const Costs& costs) noexcept {
  if (!active_) return {};
  try {
    const plan::Resources chosen = look_up(function, bytes, costs);
    return costs.possible(chosen) ? chosen : plan::Resources{};
  } catch (const std::exception& failure) {
    stop(failure.what());
  } catch (...) {
    stop("an unknown error");
  }
  return {};
}

plan::Resources Tuner::look_up(int function, uint64_t bytes, const Costs& costs) {
  const auto call = call_of(function, bytes, communicator_.n_ranks);
  if (!call || (keeps_bits_ && reduces(call->key.collective))) return {};
  if (online_ == nullptr) {
    const auto found = known_.find(call->key);
    return found == known_.end() ? plan::Resources{} : found->second;
  }
  const auto setting =
      online_->use(*call, steady_clock().now(), [&] { return costs.space(bytes); });
  if (online_->poll_new_results()) file_->start_adding(online_->learnt());
  return setting && is_nccl(*setting) ? setting->resources : plan::Resources{};
}

void Tuner::stop(const char* why) noexcept {
  active_ = false;
  try {
    log_.warn(std::string("NCCL's own choices are used: ") + why);
  } catch (...) {
    return;  // no memory for a line of log
  }
}

}  // namespace hetccl::nccl_tuner
