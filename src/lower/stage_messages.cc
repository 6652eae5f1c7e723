// Staging: adds copies between the device and memory that the transport, or the other end, can
// access.
#include "lower/graph.h"

namespace hetccl::lower {
namespace {

// A copy with the message's place in the order and its dependencies.
Node copy_of(const Node& post, QueueKind stream) {
  Node copy = post;
  copy.code.op = Opcode::Copy;
  copy.code.queue = stream_queue(stream);
  return copy;
}

// Copies a message out of the device to `place`, from where it is sent.
void stage_send(Graph& graph, uint16_t number, const Operand& place) {
  MessageNodes& message = graph.messages[number];
  Node copy = copy_of(graph.nodes[message.post], QueueKind::Out);
  copy.code.dst = place;
  if (message.via == Via::Ring) copy.reserves = {number};
  // Nodes that overwrite the source wait for the copy, not for the message.
  message.copy = graph.add(std::move(copy));
  graph.replace_dep(message.post, message.copy);
  Node& send = graph.nodes[message.post];
  send.order += 1;
  send.code.srcs = {place};
  send.deps = {{message.copy, 0}};
}

// Receives a message in `place` and copies it into the device.
void stage_recv(Graph& graph, uint16_t number, const Operand& place) {
  MessageNodes& message = graph.messages[number];
  Node copy = copy_of(graph.nodes[message.post], QueueKind::In);
  copy.code.srcs = {place};
  copy.order += 2;
  message.copy = graph.add(std::move(copy));
  graph.replace_dep(message.post, message.copy);
  graph.nodes[message.copy].deps.push_back({message.post, 0});
  graph.nodes[message.post].code.dst = place;
  graph.nodes[message.post].deps.clear();
}

void share_ring(Graph& graph, uint16_t number) {
  MessageNodes& message = graph.messages[number];
  Node& post = graph.nodes[message.post];
  post.code.op = message.send ? Opcode::SendHeader : Opcode::RecvHeader;
  if (message.send) return;
  const Instruction code = post.code;
  const uint32_t order = post.order;
  const auto add = [&](Opcode op, QueueId queue, uint32_t later, std::vector<Dep> deps) {
    Instruction one{.op = op, .queue = queue, .stage = code.stage, .step = code.step};
    one.lag = code.lag;
    one.message = number;
    return graph.add({one, order + later, std::move(deps)});
  };
  add(Opcode::Locate, stream_queue(QueueKind::In), 1, {});
  const QueueId acknowledgements = lane_queue(lane_of(code.queue), QueueKind::Acknowledge);
  message.acknowledge = add(Opcode::Acknowledge, acknowledgements, 3, {{message.copy, 0}});
}

Via via_of(const Graph& graph, const MessageNodes& message) {
  const Instruction& post = graph.code(message.post);
  const plan::Region& region = message.send ? post.srcs[0].region : post.dst.region;
  if (region.begin == region.end) return Via::Direct;  // an empty message: any transport reaches it
  const size_t lane = lane_of(post.queue);
  const Geometry::RingUse& use = graph.geometry.lanes[lane];
  if (message.send ? use.send_in_ring : use.recv_in_ring) return Via::Ring;
  const Reach& reach = graph.target.lanes[lane];
  const bool direct = reach.direct && (!reach.registered || graph.geometry.registered);
  return direct ? Via::Direct : Via::Staged;
}

}  // namespace

void stage_messages(Graph& graph) {
  for (uint16_t number = 0; number < graph.messages.size(); ++number) {
    MessageNodes& message = graph.messages[number];
    message.via = via_of(graph, message);
    if (message.via == Via::Direct) continue;
    const Instruction& post = graph.code(message.post);
    const plan::Region region = message.send ? post.srcs[0].region : post.dst.region;
    const bool ring = message.via == Via::Ring;
    const Operand place{ring ? Memory::Ring : Memory::Staging, region, number};
    message.send ? stage_send(graph, number, place) : stage_recv(graph, number, place);
    if (ring) share_ring(graph, number);
  }
}

}  // namespace hetccl::lower
