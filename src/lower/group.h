// What a launch does with the messages of one call, in which order, and on whose streams: what runs
// and what is proven take it from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lower/code.h"

namespace hetccl::lower {

/// One call's messages of one rank. Used again for the next call, so that steady state allocates
/// nothing.
class Group {
 public:
  /// What of a message's Code goes onto which stream.
  enum class Way : uint8_t {
    Stream,   ///< the message's direction has a stream of its own, on which its Code runs
    Library,  ///< the same; the library of a cluster carries the message
    User,     ///< no stream copies anything: the user's alone starts it, and waits for it
  };
  struct Member {
    int peer = -1;
    bool send = false;
    Way way{};
    uint32_t n_slices = 1;
    uint32_t first_time = 0;  ///< when its first slice comes; set by `add`
    bool first = false;       ///< of its direction, in this call; set by `add`
    bool brief = false;       ///< as Code; and what is sent waits for no room
  };
  struct Action {
    enum class Kind : uint8_t {
      Fork,  ///< the member's stream waits for the user's
      Run,   ///< `part` of the member's Code
      Join,  ///< the user's stream waits for the member's
    } kind{};
    size_t member = 0;  ///< in the order of `add`
    Part part{};
  };

  /// `rank` is whose messages these are.
  explicit Group(int rank) : rank_(rank) {}
  void clear();
  /// Messages of one direction are added in their order. What is sent comes first: it waits for no
  /// other rank, so all of it completes on a single hardware queue.
  void add(Member member);

  /// Whether their Code runs on the user's stream itself, if there is one, as that of collectives
  /// does: where all are of one direction, whose stream it would wait for anyway; and where all are
  /// brief, one of each direction, and at most one is received, which comes last. Then nothing
  /// comes behind a wait for another rank.
  [[nodiscard]] bool uses_user_stream() const {
    const size_t n = members_.size();
    const bool brief = n_brief_ == n && n_directions_ == n && n_receives_ <= 1;
    return n_on_streams_ == n && (n_directions_ == 1 || brief);
  }

  /// Whether streams wait for the user's, where there is one.
  [[nodiscard]] bool forks() const { return n_on_streams_ > 0 && !uses_user_stream(); }

  /// Calls `visit(const Action&)`, until the first error. `has_user`: there is a user's stream.
  template <typename Visit>
  Status for_each_action(bool has_user, Visit&& visit) {
    using Kind = Action::Kind;
    using Section = Part::Section;
    const bool forked = has_user && forks();
    const auto each = [&](auto&& wanted, Kind kind, Part part = {}) -> Status {
      for (size_t i = 0; i < members_.size(); ++i) {
        if (wanted(members_[i])) HETCCL_TRY(visit(Action{kind, i, part}));
      }
      return {};
    };
    const auto begins_stream = [](const Member& one) { return one.first && one.way != Way::User; };
    const auto is_users = [](const Member& one) { return one.way == Way::User; };
    if (forked) HETCCL_TRY(each(begins_stream, Kind::Fork));
    // All start before anything waits for one of them to end: a later message's header comes behind
    // it.
    HETCCL_TRY(each(is_users, Kind::Run, {Section::Prologue}));
    HETCCL_TRY(for_each_on_streams(visit));
    HETCCL_TRY(for_each_of_library(visit));
    HETCCL_TRY(each(is_users, Kind::Run, {Section::Epilogue}));
    return forked ? each(begins_stream, Kind::Join) : Status();
  }

 private:
  // Directions take turns, a slice each, so that all get on even if their streams share one
  // hardware queue.
  template <typename Visit>
  Status for_each_on_streams(Visit&& visit) {
    using Kind = Action::Kind;
    using Section = Part::Section;
    for (uint32_t time = 0; time < end_; ++time) {
      for (size_t i = 0; i < members_.size(); ++i) {
        const Member& one = members_[i];
        const uint32_t slice = time - one.first_time;  // wraps around before it begins
        if (slice >= one.n_slices || one.way != Way::Stream) continue;
        if (slice == 0) HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Prologue}}));
        HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Body, slice}}));
        if (slice + 1 == one.n_slices) HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Epilogue}}));
      }
    }
    return {};
  }
  // On a single hardware queue, or where a launch returns only once it is done, a message holds up
  // those behind it until its other end has come to it. So all ranks take the pairs, and the two
  // ways of a pair, in one order; and what follows a message comes after all of them.
  template <typename Visit>
  Status for_each_of_library(Visit&& visit) {
    using Kind = Action::Kind;
    using Section = Part::Section;
    for (const uint32_t i : by_library_) {
      HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Prologue}}));
      HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Body}}));
    }
    for (const uint32_t i : by_library_) {
      HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Epilogue}}));
    }
    return {};
  }
  [[nodiscard]] size_t direction_of(const Member& member) const {
    return 2 * static_cast<size_t>(member.peer) + (member.send ? 1 : 0);
  }

  const int rank_;
  std::vector<Member> members_;
  std::vector<uint32_t> by_library_;  // of these, in the order that all ranks share
  std::vector<uint32_t> next_times_;  // by direction: behind its last slice, and one; 0: none yet
  size_t n_directions_ = 0, n_on_streams_ = 0;  // of members that have streams
  size_t n_brief_ = 0;                          // of members whose streams copy
  size_t n_receives_ = 0;
  uint32_t end_ = 0;  // behind the last slice of all
};

}  // namespace hetccl::lower
