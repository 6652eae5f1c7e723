// The order in which a launch enqueues the messages of one call that channels carry: what runs and
// what is proven take it from here. `members` are pointers to messages.
#pragma once

#include <cstdint>

#include "lower/code.h"

namespace hetccl::lower {

/// Calls `visit(member, part)` for all parts of the messages that have streams of their own, which
/// `has_stream(member)` says, until the first error. Messages of one lane come one after the other,
/// as they travel: a member's `first_time` is when its first slice comes. Lanes take turns, a slice
/// each, so that all get on even if their streams share one hardware queue. `end` is behind the
/// last slice of all.
template <typename Members, typename HasStream, typename Visit>
Status for_each_part_on_streams(const Members& members, uint32_t end, HasStream&& has_stream,
                                Visit&& visit) {
  using Section = Part::Section;
  for (uint32_t time = 0; time < end; ++time) {
    for (auto* member : members) {
      const uint32_t slice = time - member->first_time;  // wraps around before it begins
      if (slice >= member->n_slices || !has_stream(*member)) continue;
      if (slice == 0) HETCCL_TRY(visit(*member, Part{Section::Prologue}));
      HETCCL_TRY(visit(*member, Part{Section::Body, slice}));
      if (slice + 1 == member->n_slices) HETCCL_TRY(visit(*member, Part{Section::Epilogue}));
    }
  }
  return {};
}

/// The same for messages of which streams copy nothing, so that only the user's stream is to wait:
/// all start before it waits for one of them to end.
template <typename Members, typename IsDirect, typename Visit>
Status for_each_part_on_user(const Members& members, IsDirect&& is_direct, Visit&& visit) {
  for (const Part::Section section : {Part::Section::Prologue, Part::Section::Epilogue}) {
    for (auto* member : members) {
      if (is_direct(*member)) HETCCL_TRY(visit(*member, Part{section}));
    }
  }
  return {};
}

}  // namespace hetccl::lower
