// The order in which a launch runs the Code of one call's messages, and the streams that it uses.
// Both exec and the verifier take it from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lower/code.h"

namespace hetccl::lower {

/// The messages of one call on one rank. Reused for later calls, so that the steady state allocates
/// nothing.
class Group {
 public:
  /// The streams on which a message's Code runs.
  enum class Way : uint8_t {
    Stream,   ///< a stream for the message's direction
    Library,  ///< the same, and the cluster's library carries the message
    User,     ///< no stream copies: the user's stream only starts the message and waits for it
  };
  struct Member {
    int peer = -1;
    bool send = false;
    Way way{};
    uint32_t n_slices = 1;
    uint32_t first_time = 0;  ///< time of its first slice; set by `add`
    bool first = false;       ///< first member of its direction; set by `add`
    bool brief = false;       ///< as Code::brief; and a send needs no credit
  };
  struct Action {
    enum class Kind : uint8_t {
      Fork,  ///< the member's stream waits for the user's
      Run,   ///< runs `part` of the member's Code
      Join,  ///< the user's stream waits for the member's
    } kind{};
    size_t member = 0;  ///< index in the order of `add`
    Part part{};
  };

  /// `rank` is this rank.
  explicit Group(int rank) : rank_(rank) {}
  void clear();
  /// Adds a message. Messages of one direction keep their order. Sends must come first: they wait
  /// for no other rank, so they all complete even on a single hardware queue.
  void add(Member member);

  /// Whether the Code runs on the user's stream, if there is one, as collectives do. This holds if
  /// all messages have one direction, whose stream the user's would wait for anyway. It also holds
  /// if all are brief, at most one per direction, with at most one receive, which comes last: then
  /// nothing is queued behind a wait for another rank.
  [[nodiscard]] bool uses_user_stream() const {
    const size_t n = members_.size();
    const bool brief = n_brief_ == n && n_directions_ == n && n_receives_ <= 1;
    return n_on_streams_ == n && (n_directions_ == 1 || brief);
  }

  /// Whether the members' streams wait for the user's stream, if there is one.
  [[nodiscard]] bool forks() const { return n_on_streams_ > 0 && !uses_user_stream(); }

  /// Calls `visit(const Action&)` until the first error. `has_user`: there is a user's stream.
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
    // Starts all of them before any wait for an end, because headers of later messages are queued
    // behind these.
    HETCCL_TRY(each(is_users, Kind::Run, {Section::Prologue}));
    HETCCL_TRY(for_each_on_streams(visit));
    HETCCL_TRY(for_each_of_library(visit));
    HETCCL_TRY(each(is_users, Kind::Run, {Section::Epilogue}));
    return forked ? each(begins_stream, Kind::Join) : Status();
  }

 private:
  // Directions take turns, one slice each, so that all make progress even if their streams share
  // one hardware queue.
  template <typename Visit>
  Status for_each_on_streams(Visit&& visit) {
    using Kind = Action::Kind;
    using Section = Part::Section;
    for (uint32_t time = 0; time < end_; ++time) {
      for (size_t i = 0; i < members_.size(); ++i) {
        const Member& one = members_[i];
        const uint32_t slice = time - one.first_time;  // wraps around before its first slice
        if (slice >= one.n_slices || one.way != Way::Stream) continue;
        if (slice == 0) HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Prologue}}));
        HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Body, slice}}));
        if (slice + 1 == one.n_slices) HETCCL_TRY(visit(Action{Kind::Run, i, {Section::Epilogue}}));
      }
    }
    return {};
  }
  // On a single hardware queue, or if a launch returns only when it is done, a message blocks those
  // behind it until its other end arrives. So all ranks run the pairs, and the two directions of a
  // pair, in the same order, and all epilogues come after all messages.
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
  std::vector<uint32_t> by_library_;  // Library members, in the order that all ranks share
  std::vector<uint32_t> next_times_;  // by direction: time after its last slice, plus one; 0: no
                                      // member yet
  size_t n_directions_ = 0, n_on_streams_ = 0;  // not counting User members
  size_t n_brief_ = 0;                          // Stream members that are brief
  size_t n_receives_ = 0;
  uint32_t end_ = 0;  // time after the last slice of all
};

}  // namespace hetccl::lower
