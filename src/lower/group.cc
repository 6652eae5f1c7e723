#include "lower/group.h"

#include <algorithm>
#include <tuple>

namespace hetccl::lower {
namespace {

// Key of the order that all ranks share: by pair of ranks, and within a pair first the messages
// that its lower rank sends.
auto place_of(int rank, const Group::Member& member) {
  return std::tuple(std::min(rank, member.peer), std::max(rank, member.peer),
                    member.send != (rank < member.peer));
}

}  // namespace

void Group::clear() {
  for (const Member& member : members_) {
    if (member.way != Way::User) next_times_[direction_of(member)] = 0;
  }
  members_.clear();
  by_library_.clear();
  n_directions_ = n_on_streams_ = n_brief_ = n_receives_ = 0;
  end_ = 0;
}

void Group::add(Member member) {
  if (member.way != Way::User) {
    const size_t direction = direction_of(member);
    if (next_times_.size() <= direction) next_times_.resize(direction + 1);
    uint32_t& next = next_times_[direction];
    member.first = next == 0;
    n_directions_ += member.first ? 1 : 0;
    ++n_on_streams_;
    n_receives_ += member.send ? 0 : 1;
    n_brief_ += member.way == Way::Stream && member.brief ? 1 : 0;
    member.first_time = member.first ? 0 : next - 1;
    next = member.first_time + member.n_slices + 1;
    end_ = std::max(end_, next - 1);
  }
  if (member.way == Way::Library) {
    const auto earlier = [&](const Member& one, uint32_t other) {
      return place_of(rank_, one) < place_of(rank_, members_[other]);
    };
    const auto at = std::upper_bound(by_library_.begin(), by_library_.end(), member, earlier);
    by_library_.insert(at, static_cast<uint32_t>(members_.size()));
  }
  members_.push_back(member);
}

}  // namespace hetccl::lower
