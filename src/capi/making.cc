// Makes communicators for the C API, at once or at the end of a group.
#include <cstring>
#include <optional>
#include <set>

#include "capi/group.h"
#include "capi/options.h"
#include "capi/process.h"
#include "hetccl/hetccl.h"

namespace hetccl::capi {
namespace {

using comm::Communicator;
using comm::CommunicatorOptions;
using comm::Making;

// Makes the communicator. In a group the caller gets the handle at once, and the group's end makes
// the communicator.
Status make(Making making, const Lease& runtime, hetcclComm_t* comm) {
  Group& group = Group::mine();
  if (!group.is_open()) HETCCL_TRY(making.run());
  if (auto made = making.communicator()) *comm = adopt(std::move(made), runtime);
  if (group.is_open()) group.add(std::move(making));
  return {};
}

Result<std::optional<CommunicatorOptions>> read_config(const hetcclConfig_t* config) {
  if (config == nullptr) return std::optional<CommunicatorOptions>();
  HETCCL_ASSIGN(auto options, options_of(*config));
  return std::optional(std::move(options));
}

Status init(hetcclComm_t* comm, int n_ranks, const hetcclUniqueId& id, int rank,
            const hetcclConfig_t* config) {
  if (comm == nullptr) return null("comm");
  *comm = nullptr;
  HETCCL_ASSIGN(const auto given, read_config(config));
  CommunicatorOptions options = given.value_or(CommunicatorOptions());
  options.rank = rank;
  options.n_ranks = n_ranks;
  HETCCL_ASSIGN(const auto runtime, capi::runtime());
  bootstrap::UniqueId unique_id;
  static_assert(sizeof unique_id == sizeof id.internal);
  std::memcpy(unique_id.data(), id.internal, sizeof id.internal);
  HETCCL_ASSIGN(auto making, Communicator::prepare(*runtime, unique_id, std::move(options)));
  return make(std::move(making), runtime, comm);
}

hetcclResult_t init_and_answer(hetcclComm_t* comm, int n_ranks, const hetcclUniqueId& id, int rank,
                               const hetcclConfig_t* config) {
  const auto result = finished([&] { return init(comm, n_ranks, id, rank, config); });
  return result == hetcclSuccess ? in_progress_or(result, *comm) : result;
}

// Makes a communicator of some ranks of `parent`, which `prepare(self, options)` chooses.
template <typename Prepare>
hetcclResult_t make_of(hetcclComm_t parent, hetcclComm_t* newcomm, const hetcclConfig_t* config,
                       const Prepare& prepare) {
  const auto result = with(parent, [&](Communicator& self) -> Status {
    if (newcomm == nullptr) return null("newcomm");
    *newcomm = nullptr;
    HETCCL_ASSIGN(const auto options, read_config(config));
    HETCCL_ASSIGN(const auto runtime, capi::runtime());
    HETCCL_ASSIGN(auto making, prepare(self, options ? &*options : nullptr));
    return make(std::move(making), runtime, newcomm);
  });
  return result == hetcclSuccess ? in_progress_or(result, *newcomm) : result;
}

Status check_shrink(const int* excluded, int n_excluded, int flags) {
  if (flags == HETCCL_SHRINK_ABORT) {
    return error(ErrorCode::InvalidUsage,
                 "shrinkFlags is HETCCL_SHRINK_ABORT: ranks of a communicator that was aborted or "
                 "has failed no longer meet; abort it, and make another by hetcclGetUniqueId and "
                 "hetcclCommInitRank of the ranks that are left");
  }
  if (flags != HETCCL_SHRINK_DEFAULT)
    return error(ErrorCode::InvalidArgument, "shrinkFlags is %d: it must be HETCCL_SHRINK_DEFAULT",
                 flags);
  if (excluded == nullptr) return null("excludeRanksList");
  if (n_excluded > 0) return {};
  return error(ErrorCode::InvalidArgument,
               "excludeRanksCount is %d: it must be at least 1 (for a copy call hetcclCommSplit)",
               n_excluded);
}

// The device of each rank of hetcclCommInitAll.
Result<std::vector<std::string>> devices_of(comm::Runtime& runtime, int n, const int* list) {
  const std::string vendor = runtime.gpu_vendor();
  if (vendor.empty() && list != nullptr) {
    return error(ErrorCode::Unsupported,
                 "devlist names GPUs, and this process has loaded no GPU's runtime that shows one: "
                 "pass NULL for ranks of the host");
  }
  std::vector<std::string> devices;
  std::set<int> seen;
  for (int i = 0; i < n; ++i) {
    const int device = list != nullptr ? list[i] : i;
    if (device < 0) return error(ErrorCode::InvalidArgument, "devlist[%d] is %d", i, device);
    if (!seen.insert(device).second)
      return error(ErrorCode::InvalidArgument, "devlist names device %d twice", device);
    devices.push_back(vendor.empty() ? runtime.host_name() : vendor + ":" + std::to_string(device));
  }
  return devices;
}

Result<std::vector<Making>> prepare_all(comm::Runtime& runtime, int n, const int* list) {
  HETCCL_ASSIGN(const auto devices, devices_of(runtime, n, list));
  HETCCL_ASSIGN(const auto id, runtime.service().unique_id());
  std::vector<Making> all;
  for (int rank = 0; rank < n; ++rank) {
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = n;
    options.device = devices[static_cast<size_t>(rank)];
    HETCCL_ASSIGN(auto making, Communicator::prepare(runtime, id, std::move(options)));
    all.push_back(std::move(making));
  }
  return all;
}

// Makes all communicators or none. In a group, the group's end does.
Status init_all(hetcclComm_t* comms, int n, const int* list) {
  if (comms == nullptr) return null("comms");
  if (n < 1) return error(ErrorCode::InvalidArgument, "ndev is %d: it must be at least 1", n);
  std::fill_n(comms, n, nullptr);
  HETCCL_ASSIGN(const auto runtime, capi::runtime());
  HETCCL_ASSIGN(auto all, prepare_all(*runtime, n, list));
  Group own;
  Group& group = Group::mine().is_open() ? Group::mine() : own;
  std::vector<std::shared_ptr<Communicator>> made;
  for (Making& one : all) {
    made.push_back(one.communicator());
    group.add(std::move(one));
  }
  if (&group == &own) HETCCL_TRY(own.make_communicators());
  for (size_t i = 0; i < made.size(); ++i) comms[i] = adopt(std::move(made[i]), runtime);
  return {};
}

}  // namespace
}  // namespace hetccl::capi

using hetccl::error;
using hetccl::ErrorCode;
using hetccl::Status;
using hetccl::capi::finished;

hetcclResult_t hetcclCommInitRank(hetcclComm_t* comm, int nranks, hetcclUniqueId id, int rank) {
  return hetccl::capi::init_and_answer(comm, nranks, id, rank, nullptr);
}

hetcclResult_t hetcclCommInitRankConfig(hetcclComm_t* comm, int nranks, hetcclUniqueId id, int rank,
                                        const hetcclConfig_t* config) {
  return hetccl::capi::init_and_answer(comm, nranks, id, rank, config);
}

hetcclResult_t hetcclCommInitRankScalable(hetcclComm_t* newcomm, int nranks, int myrank, int nId,
                                          const hetcclUniqueId* commIds,
                                          const hetcclConfig_t* config) {
  const auto checked = finished([&]() -> Status {
    if (commIds == nullptr) return hetccl::capi::null("commIds");
    if (nId >= 1 && nId <= nranks) return {};
    return error(ErrorCode::InvalidArgument, "nId is %d: it must be from 1 to nranks, %d", nId,
                 nranks);
  });
  if (checked != hetcclSuccess) return checked;
  return hetccl::capi::init_and_answer(newcomm, nranks, commIds[0], myrank, config);
}

hetcclResult_t hetcclCommInitAll(hetcclComm_t* comms, int ndev, const int* devlist) {
  return finished([&] { return hetccl::capi::init_all(comms, ndev, devlist); });
}

hetcclResult_t hetcclCommSplit(hetcclComm_t comm, int color, int key, hetcclComm_t* newcomm,
                               const hetcclConfig_t* config) {
  return hetccl::capi::make_of(comm, newcomm, config, [&](auto& self, const auto* options) {
    return self.prepare_split(color, key, options);
  });
}

hetcclResult_t hetcclCommShrink(hetcclComm_t comm, const int* excludeRanksList,
                                int excludeRanksCount, hetcclComm_t* newcomm,
                                const hetcclConfig_t* config, int shrinkFlags) {
  using Made = hetccl::Result<hetccl::comm::Making>;
  return hetccl::capi::make_of(comm, newcomm, config, [&](auto& self, const auto* options) -> Made {
    HETCCL_TRY(hetccl::capi::check_shrink(excludeRanksList, excludeRanksCount, shrinkFlags));
    return self.prepare_shrink({excludeRanksList, static_cast<size_t>(excludeRanksCount)}, options);
  });
}
