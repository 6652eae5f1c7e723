// How some ranks of a communicator form a new one. In a split all ranks tell each other their
// colors and keys over the parent's control plane; the first of each color then makes the id of
// their communicator, whose secret never travels (bootstrap::conceal). In a shrink the excluded
// ranks take no part, so the others meet by notes (Gathering).
#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/communicator.h"

namespace hetccl::comm {
namespace {

using Bytes = std::vector<uint8_t>;

// A rank's wish. It travels as it is in memory, in little endian.
static_assert(std::endian::native == std::endian::little);
struct Wish {
  int32_t color = 0;
  int32_t key = 0;
};

Bytes encode(const Wish& wish) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&wish);
  return {bytes, bytes + sizeof wish};
}

// The wishes of all ranks. What one rank got wrong is an error on every rank.
Result<std::vector<Wish>> decode(const std::vector<Bytes>& all) {
  std::vector<Wish> wishes;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != sizeof(Wish)) {
      return error(ErrorCode::InvalidUsage, "rank %zu does not split: it exchanges something else",
                   rank);
    }
    std::memcpy(&wishes.emplace_back(), all[rank].data(), sizeof(Wish));
    if (wishes.back().color < kNoColor) {
      return error(ErrorCode::InvalidArgument,
                   "rank %zu gave color %d: colors are 0 and more, or HETCCL_SPLIT_NOCOLOR", rank,
                   wishes.back().color);
    }
  }
  return wishes;
}

// The ranks of one color in the order of the new communicator.
std::vector<int> members_of(const std::vector<Wish>& wishes, int32_t color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color == color) members.push_back(static_cast<int>(rank));
  }
  const auto key = [&](int rank) { return wishes[static_cast<size_t>(rank)].key; };
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return key(a) < key(b); });
  return members;
}

// The ranks that are not `excluded`, in their order.
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
    Result<Seat> seat = find_seat(color, key, child->context_.init_left_ms());
    return child->take(seat.ok() ? seat : Result<Seat>(seat.status().with("splitting")));
  };
  return Making(child, shared_from_this(), work, color != kNoColor);
}

Result<Making> Communicator::prepare_shrink(std::span<const int> excluded,
                                            const CommunicatorOptions* options) {
  HETCCL_ASSIGN(const auto child, make_child(options));
  HETCCL_ASSIGN(const std::vector<int> members, members_without(excluded, membership_));
  const auto work = [this, members, child] {
    const std::lock_guard lock(gathers_);
    Result<Seat> seat =
        find_seat_among(members, child->context_.init_deadline, *child->context_.cancel);
    return child->take(seat.ok() ? seat : Result<Seat>(seat.status().with("shrinking")));
  };
  return Making(child, shared_from_this(), work);
}

Result<Communicator::Seat> Communicator::find_seat(int color, int key, int64_t timeout_ms) {
  auto& session = membership_.session();
  HETCCL_ASSIGN(const auto all, session.all_gather(encode(Wish{color, key}), timeout_ms));
  HETCCL_ASSIGN(const std::vector<Wish> wishes, decode(all));
  const std::vector<int> members = members_of(wishes, color);
  const bool leads = color != kNoColor && members.front() == session.rank();
  Bytes mine;
  Status failed;
  if (leads) {
    auto id = context_.runtime.service().unique_id(session);
    failed = id.status();
    if (id.ok()) {
      const bootstrap::UniqueId concealed = bootstrap::conceal(*id);
      mine.assign(concealed.begin(), concealed.end());
    }
  }
  HETCCL_ASSIGN(const auto ids, session.all_gather(mine, timeout_ms));
  if (color == kNoColor) return Seat{};
  HETCCL_TRY(failed);
  const Bytes& bytes = ids[static_cast<size_t>(members.front())];
  Seat seat;
  if (bytes.size() != seat.id.size()) {
    return error(ErrorCode::RemoteError, "rank %d could not start the new communicator",
                 members.front());
  }
  std::copy(bytes.begin(), bytes.end(), seat.id.begin());
  HETCCL_ASSIGN(seat.id, bootstrap::reveal(seat.id, session));
  const auto self = std::find(members.begin(), members.end(), session.rank());
  seat.rank = static_cast<int>(self - members.begin());
  seat.n_ranks = static_cast<int>(members.size());
  return seat;
}

// Why ranks that gather wait in vain, but for an abort of what they make.
Status Communicator::ended() {
  Verdict& verdict = membership_.verdict();
  return verdict.failed() ? verdict.await() : context_.cancel->reason();
}

Result<Communicator::Seat> Communicator::find_seat_among(const std::vector<int>& members,
                                                         TimePoint deadline, const Cancel& cancel) {
  auto& session = membership_.session();
  const auto make_id = [&]() -> Result<bootstrap::UniqueId> {
    HETCCL_ASSIGN(const auto id, context_.runtime.service().unique_id(session));
    return bootstrap::conceal(id);
  };
  Seat seat;
  HETCCL_ASSIGN(const auto concealed, gathering_.agree(members, make_id, deadline, cancel));
  HETCCL_ASSIGN(seat.id, bootstrap::reveal(concealed, session));
  const auto self = std::find(members.begin(), members.end(), session.rank());
  seat.rank = static_cast<int>(self - members.begin());
  seat.n_ranks = static_cast<int>(members.size());
  return seat;
}

// The new communicator's part: takes its seat and opens.
Status Communicator::take(Result<Seat> seat) {
  if (!seat.ok()) return membership_.give_up(seat.status());
  if (seat->n_ranks == 0) return {};
  membership_.take_seat(seat->rank, seat->n_ranks);
  const Status begun = begin(seat->id);
  return begun.ok() || blocking() ? begun : membership_.give_up(begun);
}

}  // namespace hetccl::comm
