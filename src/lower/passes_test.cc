// Tests each pass on its own, on the graph of a small plan.
#include <doctest/doctest.h>

#include "lower/testing.h"

namespace hetccl::lower {
namespace {

using namespace testing;

constexpr QueueId kCcl = stream_queue(QueueKind::Ccl), kOut = stream_queue(QueueKind::Out),
                  kIn = stream_queue(QueueKind::In);

// Runs all passes before `drop_implied_waits`.
Graph passed(const Job& job) {
  Graph graph = job.graph();
  stage_messages(graph);
  read_in_place(graph);
  make_in_ring(graph);
  merge_streams(graph);
  join_streams(graph);
  wait_for_slots(graph);
  return graph;
}

size_t n_deps(const Graph& graph) {
  size_t n = 0;
  for (const Node& node : graph.nodes) n += node.live ? node.deps.size() : 0;
  return n;
}

}  // namespace

TEST_CASE("the graph has a node for each step, with the plan's dependencies") {
  const Job job(exchange());
  const Graph graph = job.graph();
  REQUIRE(graph.nodes.size() == 5);
  CHECK(deps_of(graph, 0).empty());
  CHECK(deps_of(graph, 1) == "0");
  CHECK(deps_of(graph, 3) == "0 2");
  CHECK(deps_of(graph, 4) == "3");
  CHECK(graph.code(0).lag == 0);
  CHECK(graph.code(4).lag == 3);
  REQUIRE(graph.messages.size() == 2);
  CHECK(graph.messages[0].send);
  CHECK(graph.messages[0].post == 1);
  CHECK(graph.messages[1].post == 2);
  CHECK(body_of(graph) == std::vector<NodeId>{0, 1, 2, 3, 4});
}

TEST_CASE("stage_messages leaves alone what the transport reaches") {
  const Job job(exchange());
  Graph graph = job.graph();
  stage_messages(graph);
  CHECK(graph.nodes.size() == 5);
  for (const MessageNodes& message : graph.messages) {
    CHECK(message.via == Via::Direct);
    CHECK(message.copy == kNoNode);
  }
}

TEST_CASE(
    "stage_messages stages what the transport reaches, in calls whose memory it does not know") {
  Job job(exchange(), kRegistered);
  CHECK(to_json(job.code()) == to_json(Job(exchange(), kStaged).code()));
  const Geometry unknown = job.geometry;
  job.geometry.registered = true;
  CHECK(to_json(job.code()) == to_json(Job(exchange(), kDirect).code()));
  CHECK_FALSE(job.geometry.same_code(unknown));
}

TEST_CASE("stage_messages copies between the device and staging memory") {
  const Job job(exchange(), kStaged);
  Graph graph = job.graph();
  stage_messages(graph);
  const MessageNodes &sent = graph.messages[0], &received = graph.messages[1];
  CHECK(sent.via == Via::Staged);
  REQUIRE(graph.nodes.size() == 7);
  CHECK(body_of(graph) == std::vector<NodeId>{0, sent.copy, 1, 2, received.copy, 3, 4});
  CHECK(graph.code(sent.copy).queue == kOut);
  CHECK(graph.code(sent.copy).srcs[0].memory == Memory::Scratch);
  CHECK(graph.code(sent.copy).dst.memory == Memory::Staging);
  CHECK(graph.code(1).srcs[0].memory == Memory::Staging);
  CHECK(deps_of(graph, sent.copy) == "0");
  CHECK(deps_of(graph, 1) == std::to_string(sent.copy));

  CHECK(graph.code(received.copy).queue == kIn);
  CHECK(graph.code(2).dst.memory == Memory::Staging);
  CHECK(graph.code(received.copy).srcs[0].memory == Memory::Staging);
  CHECK(graph.code(received.copy).dst.memory == Memory::Scratch);
  CHECK(deps_of(graph, received.copy) == "2");
  CHECK(deps_of(graph, 3) == "0 " + std::to_string(received.copy));
}

TEST_CASE("stage_messages sends headers alone where a ring is shared") {
  const Job job(exchange(), kShared);
  Graph graph = job.graph();
  stage_messages(graph);
  const MessageNodes &sent = graph.messages[0], &received = graph.messages[1];
  CHECK(sent.via == Via::Ring);
  CHECK(graph.code(1).op == Opcode::SendHeader);
  CHECK(graph.code(2).op == Opcode::RecvHeader);
  CHECK(graph.nodes[sent.copy].reserves == std::vector<uint16_t>{0});
  CHECK(graph.code(sent.copy).dst.memory == Memory::Ring);
  CHECK(graph.code(received.copy).srcs[0].memory == Memory::Ring);
  CHECK(graph.code(received.acknowledge).op == Opcode::Acknowledge);
  CHECK(graph.code(received.acknowledge).queue == lane_queue(0, QueueKind::Acknowledge));
  CHECK(deps_of(graph, received.acknowledge) == std::to_string(received.copy));
  // A place is located before it is read, and acknowledged after.
  const std::vector<NodeId> body = body_of(graph);
  REQUIRE(body.size() == 9);
  const NodeId locate = body[4];
  CHECK(graph.code(locate).op == Opcode::Locate);
  CHECK(graph.code(locate).queue == kIn);
  CHECK(body ==
        std::vector<NodeId>{0, sent.copy, 1, 2, locate, received.copy, received.acknowledge, 3, 4});
}

TEST_CASE("merge_streams gives a short call to the user's stream, a long one keeps its own") {
  for (const uint64_t count : {kOneSlice, kEightSlices}) {
    const Job job(exchange(), kShared, count);
    Graph graph = job.graph();
    stage_messages(graph);
    merge_streams(graph);
    const bool merged = count == kOneSlice;
    CHECK((graph.code(0).queue == kUser) == merged);
    CHECK((graph.code(graph.messages[0].copy).queue == kUser) == merged);
    CHECK(deps_of(graph, graph.messages[1].acknowledge).empty() == merged);
    CHECK(graph.code(1).queue == lane_queue(1, QueueKind::Send));
  }
}

TEST_CASE("join_streams ties the streams that are used to the user's") {
  const Job job(exchange());
  Graph graph = job.graph();
  join_streams(graph);
  CHECK(deps_of(graph, 0) == "5");  // first of its stream
  CHECK(deps_of(graph, 3) == "0 2 5");
  CHECK(deps_of(graph, 4) == "3");  // last of its stream
  CHECK(deps_of(graph, 2) == "5");  // a message without dependencies
  CHECK(graph.begin == 5);
  // The last nodes of both streams; the message leaves from scratch memory.
  CHECK(deps_of(graph, graph.end) == "4 3");
}

TEST_CASE("wait_for_slots has whoever writes wait for all who used that memory") {
  const Job job(exchange(), kStaged);
  Graph graph = job.graph();
  wait_for_slots(graph);                  // scratch memory
  CHECK(deps_of(graph, 0) == "1-4 3-4");  // scratch 0: sent and reduced
  CHECK(deps_of(graph, 2) == "2-4 3-4");  // scratch 1: a message waits for its own earlier slice
  CHECK(deps_of(graph, 3) == "0 2 4-4");  // scratch 2: broadcast
  CHECK(deps_of(graph, 1) == "0");        // only reads
  CHECK(deps_of(graph, 4) == "3");

  Graph staged = job.graph();
  stage_messages(staged);
  wait_for_slots(staged);  // staging memory too
  const NodeId out = staged.messages[0].copy, in = staged.messages[1].copy;
  CHECK(deps_of(staged, out) == "0 1-4");
  CHECK(deps_of(staged, 2) == "2-4 " + std::to_string(in) + "-4");
  CHECK(deps_of(staged, 0) == "3-4 " + std::to_string(out) + "-4");
}

TEST_CASE("drop_implied_waits keeps what nothing else implies") {
  const Job job(exchange());
  Graph graph = passed(job);
  const size_t before = n_deps(graph);
  drop_implied_waits(graph);
  CHECK(n_deps(graph) < before);
  CHECK(deps_of(graph, 0) == "1-4 5");  // the library's stream has waited for the sum's end
  CHECK(deps_of(graph, 1) == "0");      // the start came before the node that it waits for
  CHECK(deps_of(graph, 2) == "3-4 5");  // a node that has read a message has waited for it
  CHECK(deps_of(graph, 3) == "0 2");    // the library's stream is in order
  CHECK(deps_of(graph, 4) == "3");
  CHECK(deps_of(graph, graph.end) == "4");
}

// An abort releases all flags at once: work that only flags order may then run before the user's
// stream reaches the call, or after it has passed it.
TEST_CASE("drop_implied_waits keeps events between streams that flags alone imply") {
  RankPlan plan;
  plan.scratch_blocks = 2;
  plan.stages = 3;
  Step copy = step(StepKind::Copy, 0, {});
  copy.srcs = {{Buffer::Input, 0}};
  copy.dst = scratch(0);
  Step broadcast = step(StepKind::CclBroadcast, 2, {2});
  broadcast.shards = {{0, scratch(1), {Buffer::Output, 0}}};
  plan.steps = {copy, message(StepKind::Send, 1, {0}, 1, scratch(0)),
                message(StepKind::Recv, 1, {}, 1, scratch(1)), broadcast};
  const Job job(plan);
  Graph graph = passed(job);
  drop_implied_waits(graph);
  CHECK(deps_of(graph, 0) == "1-4 4");
  CHECK(deps_of(graph, 1) == "0");            // the flag's wait for the start is implied
  CHECK(deps_of(graph, 3) == "2 4");          // waits for the user's stream, not only its flag
  CHECK(deps_of(graph, graph.end) == "0 3");  // waits for the copy too, as the send has
}

TEST_CASE("drop_implied_waits looks at the slots of short runs, too") {
  // With two slots: a wait that is implied a slice later is not implied in the first slice.
  Job job(exchange(), kDirect, 2 * kOneSlice);
  CHECK(job.geometry.n_slots == 2);
  Graph graph = passed(job);
  drop_implied_waits(graph);
  CHECK(deps_of(graph, 3) == "0 2");
  CHECK(deps_of(graph, 4) == "3");
}

TEST_CASE("emit orders sections, and writes each wait before its instruction") {
  const Job job(exchange());
  const Code code = emit(passed(job));
  CHECK(code.body > 0);
  CHECK(code.epilogue > code.body);
  CHECK(code.list.back().op == Opcode::Finish);
  for (uint32_t i = 0; i < code.list.size(); ++i) {
    const Instruction& one = code.list[i];
    if (one.op != Opcode::Wait && one.op != Opcode::Signal) continue;
    CHECK(one.sync < code.syncs.size());
    if (one.op == Opcode::Signal || i < code.body || i >= code.epilogue) continue;
    CHECK(code.list[i + 1].queue == one.queue);
    CHECK(code.list[i + 1].lag == one.lag);
  }
  // Nothing was dropped: the waits are the graph's.
  CHECK(waits_of(code, find(code, Opcode::CclReduce, 0)) == "1f-4 3e-4");
  CHECK(code.list[find(code, Opcode::CclReduce, 0)].queue == kCcl);
}

}  // namespace hetccl::lower
