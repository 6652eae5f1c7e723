// Functions that make and end communicators.
#include <optional>

#include "nccl/dispatch.h"

using namespace hetccl::nccl;
using hetccl::Result;

namespace {

ncclResult_t null_argument(const char* call, const char* argument) {
  return refuse(ncclInvalidArgument, std::string(call) + ": " + argument + " is null");
}

// Gives the caller a handle and runs `make` for it: at once, or at the end of the group.
template <typename Make>
ncclResult_t begin(ncclComm_t* comm, const void* order, bool blocking, const Make& make) {
  auto created = Communicator::create();
  if (!created.ok()) return finish(outcome_of(created.status()));
  const auto communicator = std::move(created).value();
  Handle* const handle = take_handle(communicator);
  if (handle == nullptr) return refuse(ncclSystemError, "too many communicators");
  *comm = comm_of(*handle);
  const bool waits = blocking && !Group::of_this_thread().open();
  const ncclResult_t result = Group::of_this_thread().run({order, blocking, [=] {
                                                             communicator->device().make_current();
                                                             return make(*communicator, *handle);
                                                           }});
  if (waits && result != ncclSuccess && result != ncclInProgress) {
    communicator->abort();
    release(*handle, communicator.get());
    *comm = nullptr;
  }
  return result;
}

// Takes an id of the vendor's library: its maker does not use hetccl.
ncclResult_t init_vendors(ncclComm_t* comm, int n_ranks, const ncclUniqueId& id, int rank,
                          ncclConfig_t* config) {
  if (vendor() == nullptr) {
    return refuse(ncclInvalidArgument,
                  "the id was not made by ncclGetUniqueId of this library, and there is no "
                  "vendor's: " +
                      why_no_vendor());
  }
  return pass_to_vendor<ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)>(
      Symbol::ncclCommInitRankConfig, comm, n_ranks, id, rank, config);
}

ncclResult_t init(const char* call, ncclComm_t* comm, int n_ranks, const ncclUniqueId& id, int rank,
                  ncclConfig_t* config) {
  if (comm == nullptr) return null_argument(call, "comm");
  *comm = nullptr;
  if (!is_ours(id)) return init_vendors(comm, n_ranks, id, rank, config);
  if (n_ranks < 1 || rank < 0 || rank >= n_ranks) {
    return refuse(ncclInvalidArgument,
                  hetccl::format("%s: %d is no rank of %d", call, rank, n_ranks));
  }
  auto copy = ConfigCopy::of(config);
  if (!copy.ok()) return finish(outcome_of(copy.status()));
  const bool blocking = copy->blocking();
  const Communicator::Request request{id, n_ranks, rank, std::move(copy).value()};
  return begin(comm, nullptr, blocking, [=](Communicator& communicator, Handle& handle) {
    return communicator.set_up(handle, request);
  });
}

// `get_child` returns this rank's place in the new communicator, or an error.
template <typename GetChild>
ncclResult_t make_child(const std::shared_ptr<Communicator>& parent, ncclComm_t* newcomm,
                        ncclConfig_t* config, const GetChild& get_child) {
  ConfigCopy copy = parent->config();
  if (config != nullptr) {
    auto given = ConfigCopy::of(config);
    if (!given.ok()) return finish(outcome_of(given.status()));
    copy = std::move(given).value();
  }
  const bool blocking = copy.blocking();
  return begin(newcomm, parent.get(), blocking, [=](Communicator& communicator, Handle& handle) {
    const auto child = get_child(*parent);
    if (!child.ok()) return communicator.conclude(handle, outcome_of(child.status()));
    return communicator.set_up(handle,
                               {child.value().id, child.value().n_ranks, child.value().rank, copy});
  });
}

ncclResult_t split(Handle& handle, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  const auto parent = communicator_of(handle);
  if (parent == nullptr) return refuse_call(handle, Symbol::ncclCommSplit);
  const auto turn = parent->take_turn();
  if (color == NCCL_SPLIT_NOCOLOR) {  // takes part in the exchange and gets no communicator
    return Group::of_this_thread().run({parent.get(), parent->config().blocking(), [=] {
                                          const auto child = parent->split(*turn, color, key);
                                          return child.ok() ? Outcome()
                                                            : outcome_of(child.status());
                                        }});
  }
  return make_child(parent, newcomm, config, [=](Communicator& from) -> Result<Meeting::Child> {
    auto child = from.split(*turn, color, key);
    if (!child.ok()) return child.status();
    return **child;
  });
}

ncclResult_t shrink(Handle& handle, std::vector<int> excluded, ncclComm_t* newcomm,
                    ncclConfig_t* config, int flags) {
  const auto parent = communicator_of(handle);
  if (parent == nullptr) return refuse_call(handle, Symbol::ncclCommShrink);
  if (flags != 0) {
    return refuse(ncclInvalidUsage,
                  "ncclCommShrink: a mixed communicator shrinks while it is healthy: after an "
                  "error abort it, and make a new one");
  }
  return make_child(parent, newcomm, config, [=, turn = parent->take_turn()](Communicator& from) {
    return from.shrink(*turn, excluded);
  });
}

// Destroys or aborts. The vendor's library ends all communicators of a group at once. A mixed
// communicator is destroyed after the group's calls, and aborted at once.
ncclResult_t end(Handle& handle, Symbol symbol) {
  const HandleState state = handle.state.load();
  Group& group = Group::of_this_thread();
  if (state == HandleState::Vendor) {
    if (const auto begun = group.enter_vendor(); begun != ncclSuccess) return begun;
  }
  const auto communicator = release(handle);
  if (communicator == nullptr) return refuse_call(handle, symbol);
  const bool aborts = symbol == Symbol::ncclCommAbort || state == HandleState::Beginning ||
                      state == HandleState::Failed;
  if (aborts) return finish(communicator->abort());
  if (state == HandleState::Vendor) return finish(communicator->destroy());
  return group.end_after([communicator] { return communicator->destroy(); });
}

}  // namespace

HETCCL_NCCL_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded([&] {
    if (id == nullptr) return null_argument("ncclGetUniqueId", "the id");
    if (VendorScope::holds())
      return call_vendor<decltype(::ncclGetUniqueId)>(*vendor(), Symbol::ncclGetUniqueId, id);
    auto made = make_id();
    if (!made.ok()) return finish(outcome_of(made.status()));
    *id = made.value();
    return ncclSuccess;
  });
}
HETCCL_NCCL_PROFILED(ncclGetUniqueId)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int n_ranks,
                                                       ncclUniqueId id, int rank,
                                                       ncclConfig_t* config) {
  return guarded([&] { return init("ncclCommInitRankConfig", comm, n_ranks, id, rank, config); });
}
HETCCL_NCCL_PROFILED(ncclCommInitRankConfig)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int n_ranks, ncclUniqueId id,
                                                 int rank) {
  return guarded([&] { return init("ncclCommInitRank", comm, n_ranks, id, rank, nullptr); });
}
HETCCL_NCCL_PROFILED(ncclCommInitRank)

// Every rank has all ids; the ranks meet at the first.
HETCCL_NCCL_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int n_ranks, int rank,
                                                         int n_ids, ncclUniqueId* ids,
                                                         ncclConfig_t* config) {
  return guarded([&]() -> ncclResult_t {
    constexpr const char* kCall = "ncclCommInitRankScalable";
    if (ids == nullptr) return null_argument(kCall, "commIds");
    if (n_ids < 1) return refuse(ncclInvalidArgument, std::string(kCall) + ": there is no id");
    if (is_ours(*ids)) return init(kCall, comm, n_ranks, *ids, rank, config);
    return pass_to_vendor<decltype(::ncclCommInitRankScalable)>(
        Symbol::ncclCommInitRankScalable, comm, n_ranks, rank, n_ids, ids, config);
  });
}
HETCCL_NCCL_PROFILED(ncclCommInitRankScalable)

// All devices of a process have the same vendor. Without a vendor's library its ranks take part as
// the host.
HETCCL_NCCL_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n_devices,
                                                const int* devices) {
  return guarded([&]() -> ncclResult_t {
    constexpr Symbol kSymbol = Symbol::ncclCommInitAll;
    if (comms == nullptr) return null_argument(name_of(kSymbol), "comms");
    if (serving_vendor() != nullptr)
      return pass_to_vendor<decltype(::ncclCommInitAll)>(kSymbol, comms, n_devices, devices);
    if (n_devices < 1) return refuse(ncclInvalidArgument, "ncclCommInitAll: ndev is not positive");
    ncclUniqueId id;
    if (const ncclResult_t made = ncclGetUniqueId(&id); made != ncclSuccess) return made;
    Group& group = Group::of_this_thread();
    ncclResult_t result = group.start();
    for (int rank = 0; rank < n_devices && result == ncclSuccess; ++rank)
      result = init(name_of(kSymbol), comms + rank, n_devices, id, rank, nullptr);
    const ncclResult_t ended = group.end();
    return result == ncclSuccess ? ended : result;
  });
}
HETCCL_NCCL_PROFILED(ncclCommInitAll)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                                              ncclComm_t* newcomm, ncclConfig_t* config) {
  if (newcomm == nullptr) return null_argument("ncclCommSplit", "newcomm");
  *newcomm = nullptr;
  return dispatch(
      comm, Symbol::ncclCommSplit,
      [&](ncclComm_t own) {
        return call_vendor<decltype(::ncclCommSplit)>(*vendor(), Symbol::ncclCommSplit, own, color,
                                                      key, newcomm, config);
      },
      [&](Handle& handle) { return split(handle, color, key, newcomm, config); });
}
HETCCL_NCCL_PROFILED(ncclCommSplit)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int n_excluded,
                                               ncclComm_t* newcomm, ncclConfig_t* config,
                                               int flags) {
  if (newcomm == nullptr) return null_argument("ncclCommShrink", "newcomm");
  if (excluded == nullptr && n_excluded > 0)
    return null_argument("ncclCommShrink", "excludeRanksList");
  *newcomm = nullptr;
  return dispatch(
      comm, Symbol::ncclCommShrink,
      [&](ncclComm_t own) {
        return call_vendor<decltype(::ncclCommShrink)>(
            *vendor(), Symbol::ncclCommShrink, own, excluded, n_excluded, newcomm, config, flags);
      },
      [&](Handle& handle) {
        return shrink(handle, {excluded, excluded + std::max(n_excluded, 0)}, newcomm, config,
                      flags);
      });
}
HETCCL_NCCL_PROFILED(ncclCommShrink)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return dispatch(
      comm, Symbol::ncclCommFinalize,
      [&](ncclComm_t own) {
        return call_vendor<decltype(::ncclCommFinalize)>(*vendor(), Symbol::ncclCommFinalize, own);
      },
      [&](Handle& handle) {
        const auto communicator = communicator_of(handle);
        if (communicator == nullptr) return refuse_call(handle, Symbol::ncclCommFinalize);
        return Group::of_this_thread().end_after(
            [communicator] { return communicator->finalize(); });
      });
}
HETCCL_NCCL_PROFILED(ncclCommFinalize)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded([&]() -> ncclResult_t {
    if (comm == nullptr) return ncclSuccess;
    if (Handle* const handle = handle_of(comm)) return end(*handle, Symbol::ncclCommDestroy);
    return pass_to_vendor<ncclResult_t(ncclComm_t)>(Symbol::ncclCommDestroy, comm);
  });
}
HETCCL_NCCL_PROFILED(ncclCommDestroy)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded([&]() -> ncclResult_t {
    if (comm == nullptr) return ncclSuccess;
    if (Handle* const handle = handle_of(comm)) return end(*handle, Symbol::ncclCommAbort);
    return pass_to_vendor<ncclResult_t(ncclComm_t)>(Symbol::ncclCommAbort, comm);
  });
}
HETCCL_NCCL_PROFILED(ncclCommAbort)
