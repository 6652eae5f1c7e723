#include "bootstrap/split.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hetccl::bootstrap {
namespace {

using Bytes = std::vector<uint8_t>;

// A rank's wish. Sent as it is in memory, which must be little endian.
static_assert(std::endian::native == std::endian::little);
struct Wish {
  int32_t color = 0;
  int32_t key = 0;
};

Bytes encode(const Wish& wish) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&wish);
  return {bytes, bytes + sizeof wish};
}

// Decodes the wishes of all ranks. An invalid wish is an error on every rank.
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
                   "rank %zu gave color %d: colors are 0 and more, or SPLIT_NOCOLOR (-1)", rank,
                   wishes.back().color);
    }
  }
  return wishes;
}

// Returns the ranks of one color in the order of the new session.
std::vector<int> members_of(const std::vector<Wish>& wishes, int32_t color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color == color) members.push_back(static_cast<int>(rank));
  }
  const auto key = [&](int rank) { return wishes[static_cast<size_t>(rank)].key; };
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return key(a) < key(b); });
  return members;
}

}  // namespace

Result<Seat> seat_of(const std::vector<int>& members, const UniqueId& concealed,
                     const Session& session) {
  Seat seat;
  HETCCL_ASSIGN(seat.id, reveal(concealed, session));
  const auto self = std::find(members.begin(), members.end(), session.rank());
  seat.rank = static_cast<int>(self - members.begin());
  seat.n_ranks = static_cast<int>(members.size());
  return seat;
}

Result<Seat> split(Session& session, Service& service, int color, int key, int64_t timeout_ms) {
  HETCCL_ASSIGN(const auto all, session.all_gather(encode(Wish{color, key}), timeout_ms));
  HETCCL_ASSIGN(const std::vector<Wish> wishes, decode(all));
  const std::vector<int> members = members_of(wishes, color);
  // A first rank without an id still takes part, so that the others do not wait for it.
  Bytes mine;
  Status failed;
  if (color != kNoColor && members.front() == session.rank()) {
    auto id = service.unique_id(session);
    failed = id.status();
    if (id.ok()) {
      const UniqueId concealed = conceal(*id);
      mine.assign(concealed.begin(), concealed.end());
    }
  }
  HETCCL_ASSIGN(const auto ids, session.all_gather(mine, timeout_ms));
  if (color == kNoColor) return Seat{};
  HETCCL_TRY(failed);
  const Bytes& given = ids[static_cast<size_t>(members.front())];
  UniqueId concealed;
  if (given.size() != concealed.size()) {
    return error(ErrorCode::RemoteError, "rank %d has no id to meet by: see its own error",
                 members.front());
  }
  std::copy(given.begin(), given.end(), concealed.begin());
  return seat_of(members, concealed, session);
}

}  // namespace hetccl::bootstrap
