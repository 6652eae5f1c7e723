// A fake of NVIDIA's library. It moves nothing: it notes each call, and that its own calls of
// public functions come back to it. A communicator of FAKE_BLOCKS ranks is made until it is
// aborted.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "nccl/declarations.h"

namespace {

constexpr int kSlow = 7, kFails = 5;

struct FakeComm {
  int n_ranks, rank;
  std::string name;
};

std::mutex mutex;
std::map<std::string, int> calls;

ncclResult_t note(const char* name) {
  const std::lock_guard lock(mutex);
  ++calls[name];
  return ncclSuccess;
}
FakeComm* fake(ncclComm_t comm) {
  return reinterpret_cast<FakeComm*>(comm);
}

}  // namespace

extern "C" {

/// Returns how often the function was called.
int fake_calls(const char* name) {
  const std::lock_guard lock(mutex);
  return calls[name];
}
const char* fake_name(ncclComm_t comm) {
  return fake(comm)->name.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22'809;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "a fake's error";
}
const char* ncclGetLastError(ncclComm_t) {
  return "the fake's last error";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 'f', sizeof *id);
  return note("ncclGetUniqueId");
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  note("ncclCommInitRankConfig");
  if (id.internal[5] != 'f') return ncclInvalidArgument;
  if (n_ranks == kSlow) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  auto* const made = new FakeComm{n_ranks, rank, ""};
  if (config != nullptr && config->commName != nullptr) made->name = config->commName;
  *comm = reinterpret_cast<ncclComm_t>(made);
  if (n_ranks == kFails) return ncclInternalError;
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  const bool waits =
      blocking != nullptr ? *blocking != '0' : config == nullptr || config->blocking != 0;
  return waits ? ncclSuccess : ncclInProgress;
}
// Calls itself by public names, as the real one does.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int n_ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, n_ranks, id, rank, nullptr);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n_devices, const int*) {
  ncclUniqueId id{};
  if (ncclGetUniqueId(&id) != ncclSuccess || id.internal[0] != 'f') return ncclInternalError;
  if (ncclGroupStart() != ncclSuccess) return ncclInternalError;
  for (int i = 0; i < n_devices; ++i) ncclCommInitRank(comms + i, n_devices, id, i);
  note("ncclCommInitAll");
  return ncclGroupEnd();
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int, int, ncclComm_t* newcomm, ncclConfig_t*) {
  *newcomm =
      reinterpret_cast<ncclComm_t>(new FakeComm{1, fake(comm)->rank, fake(comm)->name + " split"});
  return note("ncclCommSplit");
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete fake(comm);
  return note("ncclCommDestroy");
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete fake(comm);
  return note("ncclCommAbort");
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return note("ncclCommGetAsyncError");
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = fake(comm)->n_ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = fake(comm)->rank;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  return note("ncclGroupStart");
}
ncclResult_t ncclGroupEnd() {
  return note("ncclGroupEnd");
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                           ncclStream_t) {
  return note("ncclBroadcast");
}
// Calls itself by the public name, as the real one does.
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       ncclStream_t stream) {
  note("ncclBcast");
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t type, ncclRedOp_t, ncclComm_t,
                           ncclStream_t) {
  note("ncclAllReduce");
  return type == 99 ? ncclInvalidArgument : ncclSuccess;
}
ncclResult_t ncclPutSignal(const void*, size_t count, ncclDataType_t, int peer, ncclWindow_t,
                           size_t offset, int, int, unsigned, ncclComm_t comm, ncclStream_t) {
  const bool right = count == 3 && peer == 1 && offset == 40 && fake(comm)->n_ranks == 2;
  return right ? note("ncclPutSignal") : ncclInvalidArgument;
}
ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  return {fake(comm)->n_ranks, fake(comm)->rank, 1};
}
int ncclTeamRankToWorld(ncclComm_t, ncclTeam_t team, int rank) {
  return team.nRanks * 100 + team.rank * 10 + rank;
}
}
