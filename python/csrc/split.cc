// Splits process groups, and joins bound ranks before their first call.
#include <c10/util/Exception.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "backend.h"
#include "places.h"
#include "registry.h"
#include "rendezvous.h"

namespace hetccl::torch_backend {

using std::chrono::milliseconds;

void HetcclBackend::setGroupUid(const std::string& uid) {
  Backend::setGroupUid(uid);
  // This is the first point at which each rank knows whether torch has bound it. torch calls this
  // twice.
  if (arrival_.empty() || declared_.exchange(true)) return;
  declare_binding(*store_, arrival_, size_, getBoundDeviceId().has_value());
}

Binding HetcclBackend::binding() {
  // Under the wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL no rank declares anything.
  if (!declared_) return Binding::None;
  const std::lock_guard lock(binding_mutex_);
  if (!binding_) {
    binding_ = await_binding(*store_, arrival_, rank_, group_, options_->timeout);
  }
  return *binding_;
}

int64_t HetcclBackend::global_rank(int rank) const {
  const auto& ranks = options_->global_ranks_in_group;  // the default group has none
  return ranks.empty() ? rank : static_cast<int64_t>(ranks[static_cast<size_t>(rank)]);
}

std::shared_ptr<Places> HetcclBackend::places() {
  if (origin_.places == nullptr && binding() == Binding::Some) {
    const std::lock_guard lock(binding_mutex_);
    if (own_places_ == nullptr) own_places_ = std::make_shared<Places>(store_);
    return own_places_;
  }
  return origin_.places;
}

void HetcclBackend::eagerConnectSingleDevice(at::Device device) {
  // torch does not call this on ranks that it has not bound: they join by their first call, so all
  // ranks must.
  if (binding() == Binding::All) open(device);
}

c10::intrusive_ptr<c10d::Backend> HetcclBackend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const std::lock_guard lock(split_mutex_);
  // Up to torch 2.13, one split_group calls this for each type of device, with the same store.
  if (last_split_ && last_split_->store._unsafe_get_target() == store.get() &&
      last_split_->ranks == ranks) {
    return last_split_->child.lock();
  }
  c10d::DistributedBackendOptions options;
  options.store = store;
  options.group_rank = -1;
  options.group_size = static_cast<int>(ranks.size());
  options.timeout = opts->timeout;
  options.group_id = opts->group_name;
  for (const int rank : ranks) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "hetccl: split on rank ", rank_, ": ", rank,
                      " is not a rank of a group of ", size_);
    if (rank == rank_) options.group_rank = static_cast<int>(options.global_ranks_in_group.size());
    options.global_ranks_in_group.push_back(global_rank(rank));
  }
  const auto* given = dynamic_cast<const GroupOptions*>(opts.get());
  const Origin origin{origin_.registry, this->places(),
                      given != nullptr ? given->wire : options_->wire};
  auto child = origin.places != nullptr ? split_by_members(options, origin)
                                        : split_communicator(options, ranks, origin);
  if (child != nullptr) origin_.registry->add(child);
  last_split_ = LastSplit{c10::weak_intrusive_ptr<c10d::Store>(store), ranks,
                          c10::weak_intrusive_ptr<c10d::Backend>(child)};
  return child;
}

c10::intrusive_ptr<HetcclBackend> HetcclBackend::split_by_members(
    c10d::DistributedBackendOptions& options, const Origin& origin) {
  if (options.group_rank < 0) return nullptr;
  options.store = origin.places->enter(options.global_ranks_in_group);
  auto child = c10::make_intrusive<HetcclBackend>(options, preferred_device(), origin);
  child->meet();
  return child;
}

c10::intrusive_ptr<HetcclBackend> HetcclBackend::split_communicator(
    c10d::DistributedBackendOptions& options, const std::vector<int>& ranks, const Origin& origin) {
  open(std::nullopt);
  const bool joins = options.group_rank >= 0;
  const int color = joins ? *std::min_element(ranks.begin(), ranks.end()) : HETCCL_SPLIT_NOCOLOR;
  const auto timeout = std::chrono::duration_cast<milliseconds>(options.timeout);
  std::shared_ptr<Communicator> communicator;
  const auto failure = communicator_->split(color, std::max(options.group_rank, 0),
                                            name_of(device_), timeout, origin.wire, communicator);
  TORCH_CHECK_WITH(DistBackendError, !failure, "hetccl: rank ", rank_, " of process group '",
                   group_, "' could not split it: ", failure->text, " [",
                   hetcclGetErrorString(failure->result), "]");
  const uint64_t session = c10::get_hash(session_, ++splits_);
  if (!joins) return nullptr;
  // torch prefixes its own store for the group with a name on which ranks may disagree.
  options.store = c10::make_intrusive<c10d::PrefixStore>(
      c10::str("hetccl/split/", session, "/", color, "/"), store_->clone());
  auto child = c10::make_intrusive<HetcclBackend>(options, device_, origin);
  child->adopt(std::move(communicator), device_, session);
  return child;
}

}  // namespace hetccl::torch_backend
