// Code as data: queues, the static order, and its textual forms.
#include "lower/code.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "lower/testing.h"

namespace hetccl::lower {
namespace {

using namespace testing;

using Order = std::vector<std::pair<uint32_t, uint32_t>>;  // slice, index

Order walked(const Code& code, const std::vector<uint32_t>& queue, uint32_t n_slices) {
  Order order;
  Walk walk;
  for (;; walk.advance()) {
    const Issue issue = walk.at(code, queue, n_slices);
    if (issue.index == kEnd) {
      CHECK(walk.at(code, queue, n_slices).index == kEnd);  // it stays there
      return order;
    }
    order.emplace_back(issue.slice, issue.index);
  }
}

}  // namespace

TEST_CASE("queues are numbered: streams, then three for each lane") {
  CHECK(is_stream(stream_queue(QueueKind::User)));
  CHECK(is_stream(stream_queue(QueueKind::In)));
  for (const size_t lane : {0, 1, 7}) {
    for (const QueueKind kind : {QueueKind::Send, QueueKind::Recv, QueueKind::Acknowledge}) {
      const QueueId queue = lane_queue(lane, kind);
      CHECK_FALSE(is_stream(queue));
      CHECK(lane_of(queue) == lane);
      CHECK(kind_of(queue) == kind);
    }
  }
}

TEST_CASE("a queue walks its instructions in the order in which all are issued") {
  for (const Reach& reach : {kDirect, kStaged, kShared}) {
    const Code code = Job(exchange(), reach).code();
    for (const uint32_t n_slices : {1, 2, 5, 9}) {
      std::vector<Order> issued(kStreams + 3 * code.lanes.size());
      REQUIRE(for_each_issue(code, n_slices, [&](Issue issue) -> Status {
                issued[code.list[issue.index].queue].emplace_back(issue.slice, issue.index);
                return {};
              }).ok());
      for (size_t lane = 0; lane < code.lanes.size(); ++lane) {
        for (const QueueKind kind : {QueueKind::Send, QueueKind::Recv, QueueKind::Acknowledge}) {
          const auto& list = code.lanes[lane].of(kind);
          CHECK(walked(code, list, n_slices) == issued[lane_queue(lane, kind)]);
        }
      }
    }
  }
}

TEST_CASE("the start of slice k + depth comes before the end of slice k") {
  const Code code = Job(exchange()).code();
  Order order;
  REQUIRE(for_each_issue(code, 8, [&](Issue issue) -> Status {
            order.emplace_back(issue.slice, issue.index);
            return {};
          }).ok());
  const auto place = [&](uint32_t slice, Opcode op, uint16_t step) {
    return std::find(order.begin(), order.end(), std::pair(slice, find(code, op, step)));
  };
  for (uint32_t k = 0; k + 3 < 8; ++k) {
    CHECK(place(k + 3, Opcode::CclReduce, 0) < place(k, Opcode::CclBroadcast, 4));
    CHECK(place(k + 4, Opcode::CclReduce, 0) > place(k, Opcode::CclBroadcast, 4));
  }
  CHECK(order.front() == std::pair(0U, 0U));
  CHECK(order.back() == std::pair(7U, end_of(code) - 1));
}

TEST_CASE("an error ends the walk over all instructions") {
  const Code code = Job(exchange()).code();
  int visited = 0;
  const Status status = for_each_issue(code, 8, [&](Issue) -> Status {
    return ++visited < 20 ? Status() : error(ErrorCode::InternalError, "stop");
  });
  CHECK(status.message() == "stop");
  CHECK(visited == 20);
}

TEST_CASE("effects are what this rank's part of an instruction reads and writes") {
  Instruction code{.op = Opcode::CclBroadcast};
  const Operand from{Memory::Input, {}}, to{Memory::Output, {}};
  code.shards = {{0, from, to}, {1, from, to}, {1, from, to, 2}};
  const auto effects = [&](int local_rank) {
    std::string text;
    for_each_effect(code, local_rank, [&](const Operand&, bool writes, size_t place) {
      text += (writes ? "w" : "r") + std::to_string(place);
    });
    return text;
  };
  CHECK(effects(0) == "r0w0w1");
  CHECK(effects(1) == "w0r1w1r2");
  CHECK(effects(2) == "w0w1w2");
  code.op = Opcode::CclReduce;  // only broadcasts have receivers
  CHECK(effects(0) == "r0w0r1r2");
  CHECK(effects(1) == "r0r1w1r2w2");
  code = {.op = Opcode::Reduce, .srcs = {from, from}, .dst = to};
  CHECK(effects(0) == "r0r0w0");
  code = {.op = Opcode::Send, .srcs = {from}, .dst = to};
  CHECK(effects(0) == "r0");
  code = {.op = Opcode::Recv, .dst = to};
  CHECK(effects(0) == "w0");
}

TEST_CASE("people read instructions by name") {
  const Code code = Job(exchange(), kShared).code();
  CHECK(name_of(code, lane_queue(1, QueueKind::Send)) == "send to rank 5");
  CHECK(name_of(code, lane_queue(0, QueueKind::Acknowledge)) == "acknowledge to rank 3");
  const uint32_t send = find(code, Opcode::SendHeader, 1);
  CHECK(describe(code, send) ==
        format("instruction %u (send_header, step 1, queue send to rank 5)", send));
  const std::string json = to_json(code);
  for (const Instruction& one : code.list) {
    CHECK(json.find(info_of(one.op).name) != std::string::npos);
  }
}

}  // namespace hetccl::lower
