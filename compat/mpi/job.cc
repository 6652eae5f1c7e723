#include "mpi/job.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <unordered_map>

#include "base/host_identity.h"
#include "mpi/communicator.h"
#include "mpi/guard.h"
#include "mpi/rule_source.h"

namespace hetccl::mpi {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::atomic<Job*> current{nullptr};
std::atomic<bool> started{false};
thread_local int calls_inside = 0;

constexpr int64_t kNoLimitMs = 100'000'000'000;
constexpr const char* kPreloadHint =
    "set LD_PRELOAD for every rank (mpirun -x LD_PRELOAD=PATH with Open MPI, -genv LD_PRELOAD PATH "
    "with MPICH and Intel MPI), or HETCCL_INIT_TIMEOUT_MS";

// Record that each rank sends first.
struct Card {
  uint32_t magic = 0x4e7cc1a1;
  uint32_t version = HETCCL_VERSION_CODE;
  bool operator==(const Card&) const = default;
};

void move_messages(void* library) {
  if (calls_inside == 0) return;
  guarded([&] {
    static_cast<const Library*>(library)->progress();
    return 0;
  });
}

}  // namespace

Job* Job::get() {
  return current.load(std::memory_order_acquire);
}

InsideCall::InsideCall() {
  ++calls_inside;
}

InsideCall::~InsideCall() {
  --calls_inside;
}

void Job::start(Library& library) {
  if (started.exchange(true)) return;  // MPICH's Fortran MPI_Init calls the C one
  auto config = Config::from_environment();
  Settings mine{.is_readable = config.ok(), .asks = asks_for_protection()};
  if (!config.ok()) {
    Log().error("%s%s", config.status().message().c_str(),
                mine.asks ? "" : ": MPI serves every call");
  }
  // A rank that hetccl may not serve still has to tell the others.
  Config used = config.ok() ? config.value() : Config();
  if (!config.ok()) used.mpi = false;
  library.learn();
  std::unique_ptr<Job> job(new Job(library, std::move(used)));
  if (job->agree(mine)) current.store(job.release(), std::memory_order_release);
}

bool Job::may_serve() {
  if (started.load()) return get() != nullptr;
  const auto config = Config::from_environment();
  return config.ok() && config.value().mpi;
}

Job::Job(Library& library, Config config)
    : library_(library),
      config_(std::move(config)),
      requests_(library),
      summary_(config_.mpi_summary) {
  log_.level = parse_log_level(config_.log_level).value_or(LogLevel::Warn);
  log_.rank = library_.rank(library_.comm_world);
  config_.warn(log_.rank);
}

bool Job::agree(Settings mine) {
  const bool alone = library_.size(library_.comm_world) == 1;
  if (!alone) meet_ranks();
  const std::vector<Settings> ranks = exchange(mine);
  if (const std::string why = find_refusal(ranks); !why.empty()) end(why);
  const auto any = [&](uint8_t Settings::* flag, bool value) {
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](const Settings& rank) { return (rank.*flag != 0) == value; });
  };
  if (any(&Settings::serves, false)) return false;
  // Without rules the MPI serves every call; calls with device memory work on host copies.
  if (!alone) agree_on_rules();
  multithreaded_ = any(&Settings::is_multithreaded, true);
  learn_nodes(ranks);
  requests_.open();
  library_.set_attribute(library_.comm_self, library_.create_key(finish_job), this);
  hetcclSetIdleHook(move_messages, const_cast<Library*>(&library_));
  return true;
}

// A rank without this library would take hetccl's first collective message for one of the program's
// own collective. Messages with a tag of their own harm no program, so the ranks meet by those.
void Job::meet_ranks() {
  const int size = library_.size(library_.comm_world);
  const int tag = library_.own_tag();
  if (log_.rank == 0) {
    meet_as_rank_0(size, tag);
  } else {
    meet_rank_0(tag);
  }
}

void Job::meet_as_rank_0(int size, int tag) {
  const auto deadline = steady_clock::now() + milliseconds(config_.init_timeout_ms);
  std::vector<int> missing;
  for (int rank = 1; rank < size; ++rank) missing.push_back(rank);
  while (!missing.empty() && steady_clock::now() < deadline) {
    std::erase_if(missing,
                  [&](int rank) { return library_.probe(rank, tag, library_.comm_world); });
    if (!missing.empty()) std::this_thread::yield();
  }
  if (!missing.empty()) {
    log_.error("rank %d%s has not loaded libhetccl_mpi.so within %lld ms of MPI_Init: %s",
               missing.front(),
               missing.size() > 1 ? format(" and %zu others", missing.size() - 1).c_str() : "",
               static_cast<long long>(config_.init_timeout_ms), kPreloadHint);
    library_.abort(1);
  }
  const Card mine;
  for (int rank = 1; rank < size; ++rank) {
    Card card;
    library_.receive(&card, sizeof(card), rank, tag, library_.comm_world);
    if (card == mine) continue;
    log_.error("rank %d has loaded version %u of libhetccl_mpi.so, and rank 0 version %u", rank,
               card.version, mine.version);
    library_.abort(1);
  }
  for (int rank = 1; rank < size; ++rank) {
    library_.send(&mine, sizeof(mine), rank, tag, library_.comm_world);
  }
}

void Job::meet_rank_0(int tag) {
  // If rank 0 has this library, it times out first and names the rank that all wait for.
  const auto deadline = steady_clock::now() + milliseconds(config_.init_timeout_ms + 1000);
  Card card;
  library_.send(&card, sizeof(card), 0, tag, library_.comm_world);
  while (!library_.probe(0, tag, library_.comm_world)) {
    if (steady_clock::now() > deadline) {
      log_.error("rank 0 has not loaded libhetccl_mpi.so within %lld ms of MPI_Init: %s",
                 static_cast<long long>(config_.init_timeout_ms), kPreloadHint);
      library_.abort(1);
    }
    std::this_thread::yield();
  }
  library_.receive(&card, sizeof(card), 0, tag, library_.comm_world);
}

void Job::agree_on_rules() {
  RuleSource source;
  if (log_.rank == 0) {
    auto found = find_rules(config_);
    if (found.ok()) {
      source = std::move(found).value();
    } else {
      log_.error("%s: MPI serves every call", found.status().message().c_str());
    }
  }
  int64_t bytes = static_cast<int64_t>(source.text.size());
  library_.broadcast(&bytes, sizeof(bytes), 0, library_.comm_world);
  if (bytes == 0) return;
  source.text.resize(static_cast<size_t>(bytes));
  library_.broadcast(source.text.data(), static_cast<int>(bytes), 0, library_.comm_world);
  auto rules = Rules::parse(source.text, source.name);
  if (!rules.ok()) {
    if (log_.rank == 0) {
      log_.error("%s: MPI serves every call", rules.status().message().c_str());
    }
    return;
  }
  rules_ = std::move(rules).value();
  log_.debug("MPI calls are served by %s", source.name.c_str());
}

std::vector<Settings> Job::exchange(Settings mine) {
  const std::string host = config_.host_id.empty() ? host_identity() : config_.host_id;
  host_ = std::hash<std::string>()(host);
  mine.host = host_;
  mine.serves = config_.mpi;
  mine.encrypts = config_.encrypt;
  mine.allows_cleartext = config_.mpi_cleartext;
  mine.has_secret_file = !config_.secret_file.empty();
  mine.is_multithreaded = library_.is_multithreaded();
  std::vector<Settings> ranks(static_cast<size_t>(library_.size(library_.comm_world)));
  library_.gather_all(&mine, ranks.data(), sizeof(mine), library_.comm_world);
  return ranks;
}

void Job::learn_nodes(const std::vector<Settings>& ranks) {
  std::unordered_map<uint64_t, int> numbers;
  for (const Settings& rank : ranks) {
    nodes_.push_back(
        numbers.try_emplace(rank.host, static_cast<int>(numbers.size())).first->second);
  }
}

void Job::end(const std::string& why) const {
  if (log_.rank == 0) log_.error("%s", why.c_str());
  static_cast<void>(library_.combine(0, library_.comm_world));  // rank 0 has logged it by then
  library_.abort(1);
}

int64_t Job::timeout_ms() const {
  return config_.is_given("HETCCL_TIMEOUT_MS") ? config_.timeout_ms : kNoLimitMs;
}

std::optional<Shape> Job::shape_of(Word comm, int size) const {
  std::vector<int> ranks(static_cast<size_t>(size));
  library_.ranks_in_world(comm, size, ranks.data());
  Shape shape{.size = size, .nodes = 0};
  std::vector<bool> seen(nodes_.size());
  int before = -1;
  for (const int rank : ranks) {
    if (rank == library_.abi.undefined) return std::nullopt;
    const int node = node_of(rank);
    if (!seen[static_cast<size_t>(node)]) {
      ++shape.nodes;
    } else if (node != before) {
      shape.consecutive = false;
    }
    seen[static_cast<size_t>(node)] = true;
    before = node;
  }
  return shape;
}

// Runs at the very beginning of MPI_Finalize, when the MPI deletes the attributes of MPI_COMM_SELF.
int Job::finish_job(Word, int, void* value, void*) {
  const std::unique_ptr<Job> job(static_cast<Job*>(value));
  current.store(nullptr, std::memory_order_release);
  return guarded([&] {
    job->finish();
    return 0;
  });
}

void Job::finish() {
  if (const int left = requests_.finish(config_.timeout_ms); left > 0) {
    log_.error("MPI_Finalize: %d nonblocking calls are not complete after HETCCL_TIMEOUT_MS=%lld",
               left, static_cast<long long>(config_.timeout_ms));
    library_.abort(1);
  }
  Communicator::destroy_all();
  hetcclSetIdleHook(nullptr, nullptr);
  summary_.print(library_);
}

}  // namespace hetccl::mpi
