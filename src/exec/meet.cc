// Makes the orders of messages with another rank.
#include <utility>

#include "exec/executor.h"
#include "plan/message.h"

namespace hetccl::exec {

Result<std::unique_ptr<MessageOrder>> Executor::make_order(const Peer& to, bool send) const {
  auto& device = *options_.device;
  const int self = options_.rank;
  // For any-source, any other rank stands for all.
  const int peer = to.rank;
  const int other = peer == kAnyRank ? (self == 0 ? 1 : 0) : peer;
  auto order = std::make_unique<MessageOrder>(
      plan::plan_message(self, send ? self : other, send ? other : self, *options_.topology),
      *options_.clock, options_.message_recorder);
  order->peer = peer;
  order->send = send;
  order->window = to.window;
  order->registers = to.registers;
  const size_t ring = to.window == nullptr ? 0 : to.window->ring_bytes();
  order->choice = lower::message_choice(lower::kMessageChoice, ring);
  std::vector<lower::Reach> reach;
  if (peer != self) reach.push_back({other, to.direct, ring, to.registered});
  order->needs_no_copy = !reach.empty() && reach[0].needs_no_copy();
  order->registered = to.registered;
  order->program.bind({traits_of_rank(options_.local_rank), std::move(reach)});
  HETCCL_ASSIGN(order->interpreter, Interpreter::create(device, *batch_, nullptr, 1, {}));
  if (order->needs_no_copy && host_memory_) return order;
  HETCCL_ASSIGN(order->stream, device.create_stream());
  HETCCL_ASSIGN(order->rotation, Rotation::create(device));
  return order;
}

Result<MessageEnds> Executor::make_ends(const Peer& peer) const {
  MessageEnds ends;
  if (peer.rank != options_.rank) {
    HETCCL_ASSIGN(ends.receives, make_order(peer, false));
  }
  if (peer.rank != kAnyRank) {
    HETCCL_ASSIGN(ends.sends, make_order(peer, true));
  }
  return ends;
}

void Executor::meet(int peer, MessageEnds ends) {
  const bool other = peer != options_.rank && peer != kAnyRank;
  Window* const window = other ? ends.sends->window : nullptr;
  messages_.add(peer, std::move(ends));
  if (other) connect({.rank = peer, .crosses = false, .window = window, .for_messages = true});
}

Result<std::unique_ptr<MessageLibrary>> Executor::make_library(int peer, bool send) const {
  auto& device = *options_.device;
  const int self = options_.rank;
  auto library = std::make_unique<MessageLibrary>(
      plan::plan_message_by_library(self, send ? self : peer, send ? peer : self));
  library->program.bind({traits_of_rank(self < peer ? 0 : 1), {lower::reach_for_headers(peer)}});
  HETCCL_ASSIGN(library->interpreter, Interpreter::create(device, *batch_, nullptr, 2, {}));
  HETCCL_ASSIGN(library->recorded, device.create_stream());
  return library;
}

void Executor::use_library(int peer, bool send, std::unique_ptr<MessageLibrary> library,
                           ccl::Communicator& pair) {
  library->pair = &pair;
  library->interpreter->use(pair);
  if (aborted_) pair.abort();
  messages_.of(peer, send).library = std::move(library);
}

const lower::Target& Executor::message_target(int peer, bool send, bool by_library) const {
  const MessageOrder& order = messages_.of(peer, send);
  return by_library ? order.library->program.target() : order.program.target();
}

}  // namespace hetccl::exec
