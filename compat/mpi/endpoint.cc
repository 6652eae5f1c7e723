#include "mpi/endpoint.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu_pause.h"
#include "mpi/job.h"

namespace hetccl::mpi {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

// A waiting thread spins for this long on a GPU's mark, then drives the MPI between polls.
constexpr auto kSpin = microseconds(20);
// Interval at which a waiting thread asks the communicator whether it has failed.
constexpr auto kLook = std::chrono::milliseconds(1);

// Adds the communicator's failure, or, without one, the calling thread's last error.
Status status_of(hetcclResult_t result, hetcclComm_t comm) {
  if (result == hetcclSuccess) return {};
  const char* text = comm == nullptr ? "" : hetcclGetLastError(comm);
  return error(ErrorCode::SystemError, "%s", *text != '\0' ? text : hetcclGetLastError(nullptr));
}

// Record that ranks exchange before they create a communicator of hetccl.
struct PlaceCard {
  hetcclUniqueId id;  // set by rank 0
  int32_t ok = 0;
  char gpu[32] = {};  // PCI bus id; empty if the rank takes part with host memory
  uint64_t host = 0;
};

// Returns the cluster number of `rank`. A vendor's library refuses two ranks on one GPU, so the
// k-th rank on each GPU joins cluster k.
int place_on_gpu(const std::vector<PlaceCard>& cards, int rank) {
  const PlaceCard& mine = cards[static_cast<size_t>(rank)];
  if (mine.gpu[0] == 0) return 0;
  return static_cast<int>(
      std::count_if(cards.begin(), cards.begin() + rank, [&](const PlaceCard& card) {
        return card.host == mine.host && std::strcmp(card.gpu, mine.gpu) == 0;
      }));
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(Word comm, MemorySpace place,
                                                   const Library& library) {
  const int rank = library.rank(comm), size = library.size(comm);
  std::unique_ptr<Endpoint> endpoint(new Endpoint(place, library));
  Status status;
  PlaceCard mine;
  if (rank == 0) status = status_of(hetcclGetUniqueId(&mine.id), nullptr);
  if (status.ok() && !place.on_host()) status = endpoint->open_gpu(mine.gpu, sizeof(mine.gpu));
  mine.ok = status.ok() ? 1 : 0;
  mine.host = Job::get()->host();
  std::vector<PlaceCard> cards(static_cast<size_t>(size));
  library.gather_all(&mine, cards.data(), sizeof(mine), comm);
  const auto failed =
      std::find_if(cards.begin(), cards.end(), [](const PlaceCard& card) { return card.ok == 0; });
  if (failed == cards.end()) {
    for (int r = 0; r < size; ++r) endpoint->shares_gpus_ |= place_on_gpu(cards, r) > 0;
    status = endpoint->join(cards.front().id, size, rank, place_on_gpu(cards, rank));
    if (library.combine(status.ok() ? 0 : 1, comm) == 0) return endpoint;
  }
  if (status.ok()) status = error(ErrorCode::RemoteError, "another rank cannot join");
  return status;
}

Status Endpoint::open_gpu(char* bus_id, size_t bytes) {
  HETCCL_ASSIGN(Gpu * gpu, Gpu::open(place_.gpu));
  std::snprintf(bus_id, bytes, "%s", gpu->device().bus_id().c_str());
  HETCCL_ASSIGN(queue_, GpuQueue::create(gpu->device()));
  return {};
}

Status Endpoint::join(const hetcclUniqueId& id, int size, int rank, int place_on_gpu) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  const std::string device = place_.on_host() ? "host" : place_.gpu.text();
  const std::string cluster = format("mpi-%d", place_on_gpu);
  config.device = device.c_str();
  if (place_on_gpu > 0) config.cluster = cluster.c_str();
  config.timeout_ms = Job::get()->timeout_ms();
  return status_of(hetcclCommInitRankConfig(&comm_, size, id, rank, &config), nullptr);
}

Endpoint::~Endpoint() {
  if (comm_ != nullptr) hetcclCommDestroy(comm_);
  if (host_stream_ != nullptr) hetcclHostStreamDestroy(host_stream_);
}

Status Endpoint::run(const Exchange& exchange) {
  return status_of(exchange.launch(comm_, nullptr), comm_);
}

Result<uint64_t> Endpoint::start(const Exchange& exchange, size_t part, size_t parts) {
  if (queue_ != nullptr) {
    HETCCL_TRY(queue_->follow_default_stream());
    HETCCL_TRY(status_of(exchange.launch(comm_, queue_->native(), part, parts), comm_));
    HETCCL_ASSIGN(const uint32_t mark, queue_->mark());
    return uint64_t{mark};
  }
  if (host_stream_ == nullptr) {
    HETCCL_TRY(status_of(hetcclHostStreamCreate(&host_stream_), nullptr));
  }
  HETCCL_TRY(status_of(exchange.launch(comm_, host_stream_, part, parts), comm_));
  uint64_t ticket = 0;
  HETCCL_TRY(status_of(hetcclHostStreamRecord(host_stream_, &ticket), nullptr));
  return ticket;
}

bool Endpoint::is_done(uint64_t mark) const {
  if (queue_ != nullptr) return queue_->is_reached(static_cast<uint32_t>(mark));
  return hetcclHostStreamQuery(host_stream_, mark) != hetcclInProgress;
}

Status Endpoint::await(uint64_t mark) {
  if (queue_ == nullptr) {
    HETCCL_TRY(status_of(hetcclHostStreamWait(host_stream_, mark, -1), nullptr));
    return failure();
  }
  const auto begin = steady_clock::now();
  auto looked = begin;
  while (!is_done(mark)) {
    const auto now = steady_clock::now();
    if (now - begin < kSpin) {
      cpu_pause();
      continue;
    }
    library_.progress();
    sched_yield();
    if (now - looked < kLook) continue;
    looked = now;
    HETCCL_TRY(failure());
  }
  return failure();
}

void Endpoint::wait_briefly(uint64_t mark) {
  if (queue_ == nullptr) {
    hetcclHostStreamWait(host_stream_, mark, 1);
    return;
  }
  const auto end = steady_clock::now() + kSpin;
  while (!is_done(mark) && steady_clock::now() < end) cpu_pause();
}

Status Endpoint::failure() const {
  hetcclResult_t result = hetcclSuccess;
  hetcclCommGetAsyncError(comm_, &result);
  return status_of(result, comm_);
}

}  // namespace hetccl::mpi
