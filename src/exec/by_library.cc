// Messages between two ranks of a cluster that its library carries, in communicators of these two.
#include <utility>

#include "exec/point_to_point.h"
#include "plan/message.h"

namespace hetccl::exec {

Result<std::unique_ptr<PointToPoint::Library>> PointToPoint::make_library(
    int peer, bool send, ccl::Communicator& pair) const {
  auto& device = *options_.device;
  const int self = options_.rank;
  auto library = std::make_unique<Library>(
      plan::plan_message_by_library(self, send ? self : peer, send ? peer : self));
  library->pair = &pair;
  library->program.bind({traits_of(device, self < peer ? 0 : 1), {lower::reach_for_headers(peer)}});
  HETCCL_ASSIGN(library->interpreter, Interpreter::create(device, &pair, 2, {}));
  HETCCL_ASSIGN(library->recorded, device.create_stream());
  return library;
}

void PointToPoint::use_library(int peer, bool send, std::unique_ptr<Library> library) {
  if (aborted_) library->pair->abort();
  lane_of({.send = send, .peer = peer}).library = std::move(library);
}

const lower::Target& PointToPoint::target(int peer, bool send, bool by_library) const {
  const Lane& lane = lane_of({.send = send, .peer = peer});
  return by_library ? lane.library->program.target() : lane.program.target();
}

Interpreter& PointToPoint::interpreter_of(const Transit& transit) {
  const Lane& lane = *transit.lane;
  return transit.by_library ? *lane.library->interpreter : *lane.interpreter;
}

bool PointToPoint::check_library(Lane& lane) {
  if (lane.library == nullptr) return true;
  const Status status = lane.library->pair->async_error();
  if (status.ok() || faulted_) return status.ok();
  fault({status.with(format("messages with rank %d", lane.peer)), lane.peer, {}});
  return false;
}

void PointToPoint::abort_libraries() {
  for (Lane* lane : met_) {
    if (lane->library != nullptr) lane->library->pair->abort();
  }
}

bool PointToPoint::aborts_have_begun() const {
  bool all = options_.ccl == nullptr || options_.ccl->abort_has_begun();
  for (const Lane* lane : met_) {
    all &= lane->library == nullptr || lane->library->pair->abort_has_begun();
  }
  return all;
}

}  // namespace hetccl::exec
