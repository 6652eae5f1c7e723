#include "mpi/work.h"

#include <algorithm>
#include <utility>

#include "mpi/communicator.h"

namespace hetccl::mpi {

ExchangeWork::ExchangeWork(std::shared_ptr<Communicator> owner, std::unique_ptr<Exchange> exchange)
    : owner_(std::move(owner)), exchange_(std::move(exchange)) {}

ExchangeWork::~ExchangeWork() {
  if (!is_done()) static_cast<void>(exchange_.release());
}

Status ExchangeWork::start(Endpoint& endpoint, size_t part, size_t parts) {
  HETCCL_ASSIGN(const uint64_t mark, endpoint.start(*exchange_, part, parts));
  parts_.push_back({&endpoint, mark});
  return {};
}

Status ExchangeWork::wait() {
  for (const Part& part : parts_) HETCCL_TRY(part.endpoint->await(part.mark));
  return {};
}

bool ExchangeWork::is_done() {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.endpoint->is_done(part.mark); });
}

void ExchangeWork::wait_briefly() {
  for (const Part& part : parts_) {
    if (part.endpoint->is_done(part.mark)) continue;
    part.endpoint->wait_briefly(part.mark);
    return;
  }
}

Status ExchangeWork::finish() {
  for (const Part& part : parts_) HETCCL_TRY(part.endpoint->failure());
  return exchange_->deliver();
}

PersistentExchange::PersistentExchange(const MpiCall& call, std::shared_ptr<Communicator> owner,
                                       Endpoint* endpoint, const Library& library)
    : owner_(std::move(owner)),
      endpoint_(endpoint),
      library_(library),
      kept_(keep_types(call), owner_->size(), owner_->rank()) {}

MpiCall PersistentExchange::keep_types(MpiCall call) {
  const Sides sides = significant_sides(call, owner_->rank());
  if (sides.send) call.send.type = types_.emplace_back(call.send.type, library_).get();
  if (sides.recv) call.recv.type = types_.emplace_back(call.recv.type, library_).get();
  return call;
}

PersistentExchange::~PersistentExchange() {
  owner_->release(endpoint_);
}

Result<std::unique_ptr<Work>> PersistentExchange::begin() {
  HETCCL_ASSIGN(auto exchange, Exchange::prepare(kept_.call(), owner_->size(), owner_->rank(),
                                                 endpoint_->place(), library_));
  auto work = std::make_unique<ExchangeWork>(owner_, std::move(exchange));
  HETCCL_TRY(work->start(*endpoint_, 0, 1));
  return std::unique_ptr<Work>(std::move(work));
}

}  // namespace hetccl::mpi
