#include "mpi/work.h"

#include <algorithm>
#include <utility>

#include "mpi/communicator.h"

namespace hetccl::mpi {

Operation::Operation(std::shared_ptr<Communicator> owner, std::unique_ptr<Exchange> exchange)
    : owner_(std::move(owner)), exchange_(std::move(exchange)) {}

Operation::~Operation() = default;

Status Operation::start(Endpoint& endpoint, size_t part, size_t parts) {
  HETCCL_ASSIGN(const uint64_t mark, endpoint.start(*exchange_, part, parts));
  parts_.push_back({&endpoint, mark});
  return {};
}

Status Operation::wait() {
  for (const Part& part : parts_) HETCCL_TRY(part.endpoint->await(part.mark));
  return {};
}

bool Operation::is_done() {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.endpoint->is_done(part.mark); });
}

void Operation::wait_briefly() {
  for (const Part& part : parts_) {
    if (part.endpoint->is_done(part.mark)) continue;
    part.endpoint->wait_briefly(part.mark);
    return;
  }
}

Status Operation::finish() {
  for (const Part& part : parts_) HETCCL_TRY(part.endpoint->failure());
  return exchange_->deliver();
}

}  // namespace hetccl::mpi
