#include "lower/group.h"

#include <doctest/doctest.h>

namespace {

using namespace hetccl;
using lower::Group;
using enum Group::Way;

Group group_of(std::initializer_list<Group::Member> members) {
  Group group(0);
  for (const Group::Member& member : members) group.add(member);
  return group;
}

size_t count(Group& group, Group::Action::Kind kind) {
  size_t found = 0;
  CHECK(group
            .for_each_action(true,
                             [&](const Group::Action& action) {
                               found += action.kind == kind ? 1 : 0;
                               return Status();
                             })
            .ok());
  return found;
}

}  // namespace

TEST_CASE("brief messages run on the user's stream, which forks to none") {
  const Group::Member sent{.peer = 1, .send = true, .way = Stream, .brief = true};
  const Group::Member received{.peer = 2, .way = Stream, .brief = true};
  const Group::Member longer{3, false, Stream, 4};
  const Group::Member library{4, true, Library};
  CHECK(group_of({sent, received}).uses_user_stream());
  CHECK(group_of({sent, {.peer = 3, .send = true, .way = Stream, .brief = true}, received})
            .uses_user_stream());
  // The second send would be queued behind a receive, which waits for another rank.
  CHECK_FALSE(group_of({sent, sent, received}).uses_user_stream());
  CHECK_FALSE(group_of({received, {.peer = 3, .way = Stream, .brief = true}}).uses_user_stream());
  CHECK(group_of({longer, longer}).uses_user_stream());  // one direction
  for (const auto& third : {longer, library}) {
    Group mixed = group_of({sent, received, third});
    CHECK_FALSE(mixed.uses_user_stream());
    CHECK(count(mixed, Group::Action::Kind::Fork) == 3);
    CHECK(count(mixed, Group::Action::Kind::Join) == 3);
    mixed.clear();  // the next call has other messages
    mixed.add(sent);
    mixed.add(received);
    CHECK(mixed.uses_user_stream());
    CHECK(count(mixed, Group::Action::Kind::Fork) == 0);
  }
}
