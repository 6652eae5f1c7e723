// Forms a new communicator of some ranks. In a split all ranks take part, over the parent's control
// plane (bootstrap::split). In a shrink the excluded ranks take no part, so the others meet by
// notes (Gathering).
#include "comm/communicator.h"

namespace hetccl::comm {
namespace {

// Returns the ranks that are not `excluded`, in ascending order.
Result<std::vector<int>> members_without(std::span<const int> excluded,
                                         const Membership& membership) {
  std::vector<bool> stays(static_cast<size_t>(membership.n_ranks()), true);
  for (const int rank : excluded) {
    if (rank < 0 || rank >= membership.n_ranks()) {
      return error(ErrorCode::InvalidArgument, "excluded rank %d is none: ranks are 0 to %d", rank,
                   membership.n_ranks() - 1);
    }
    if (rank == membership.rank()) {
      return error(ErrorCode::InvalidArgument,
                   "rank %d excludes itself: only ranks that stay make the call", rank);
    }
    if (!stays[static_cast<size_t>(rank)])
      return error(ErrorCode::InvalidArgument, "rank %d is excluded twice", rank);
    stays[static_cast<size_t>(rank)] = false;
  }
  std::vector<int> members;
  for (size_t rank = 0; rank < stays.size(); ++rank) {
    if (stays[rank]) members.push_back(static_cast<int>(rank));
  }
  return members;
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::make_child(const CommunicatorOptions* options) {
  HETCCL_TRY(dispatch_.check_ready());
  CommunicatorOptions chosen = options != nullptr ? *options : context_.options;
  if (chosen.device.empty()) chosen.device = context_.options.device;
  chosen.rank = -1;
  chosen.n_ranks = 0;
  return make(runtime(), std::move(chosen));
}

Result<Making> Communicator::prepare_split(int color, int key, const CommunicatorOptions* options) {
  HETCCL_ASSIGN(const auto child, make_child(options));
  const auto work = [this, color, key, child] {
    Result<Seat> seat = bootstrap::split(membership_.session(), context_.runtime.service(), color,
                                         key, child->context_.init_left_ms());
    return child->take(seat.ok() ? seat : Result<Seat>(seat.status().with("splitting")));
  };
  return Making(child, shared_from_this(), work, color != bootstrap::kNoColor);
}

Result<Making> Communicator::prepare_shrink(std::span<const int> excluded,
                                            const CommunicatorOptions* options) {
  HETCCL_ASSIGN(const auto child, make_child(options));
  HETCCL_ASSIGN(const std::vector<int> members, members_without(excluded, membership_));
  const auto work = [this, members, child] {
    const std::lock_guard lock(gathers_);
    Result<Seat> seat = find_seat(members, child->context_.init_deadline, *child->context_.cancel);
    return child->take(seat.ok() ? seat : Result<Seat>(seat.status().with("shrinking")));
  };
  return Making(child, shared_from_this(), work);
}

// Returns why gathering ranks wait in vain; an abort of the new communicator is not seen here.
Status Communicator::ended() {
  Verdict& verdict = membership_.verdict();
  return verdict.failed() ? verdict.await() : context_.cancel->reason();
}

Result<bootstrap::Seat> Communicator::find_seat(const std::vector<int>& members, TimePoint deadline,
                                                const Cancel& cancel) {
  auto& session = membership_.session();
  const auto make_id = [&]() -> Result<bootstrap::UniqueId> {
    HETCCL_ASSIGN(const auto id, context_.runtime.service().unique_id(session));
    return bootstrap::conceal(id);
  };
  HETCCL_ASSIGN(const auto concealed, gathering_.agree(members, make_id, deadline, cancel));
  return bootstrap::seat_of(members, concealed, session);
}

// Continues as the new communicator: takes its rank and opens.
Status Communicator::take(Result<Seat> seat) {
  if (!seat.ok()) return membership_.give_up(seat.status());
  if (seat->n_ranks == 0) return {};
  membership_.take_seat(seat->rank, seat->n_ranks);
  const Status begun = begin(seat->id);
  return begun.ok() || blocking() ? begun : membership_.give_up(begun);
}

}  // namespace hetccl::comm
