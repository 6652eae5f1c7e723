#include "comm/fabric.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/keep.h"
#include "exec/link_probe.h"

namespace hetccl::comm {
namespace {

int64_t to_mbps(double bytes_per_second) {
  return std::max<int64_t>(1, static_cast<int64_t>(bytes_per_second * 8 / 1e6));
}

}  // namespace

Status Fabric::open() {
  Runtime& runtime = context_.runtime;
  HETCCL_ASSIGN(device_, runtime.device(context_.options.device));
  HETCCL_ASSIGN(library_, runtime.library(*device_, context_.init_limit()));
  WindowBudget::Share share;
  if (runtime.shares_memory()) share = runtime.windows().take(*device_);
  const size_t window_bytes = exec::Window::bytes_for_collectives(share.bytes());
  HETCCL_TRY(membership_.introduce(*device_, *library_, window_bytes));
  channels_ = std::make_unique<Channels>(context_, membership_, *device_, std::move(share));
  HETCCL_TRY(join_cluster().with("opening the cluster's library"));
  return channels_->open().with("connecting to other clusters");
}

Status Fabric::join_cluster() {
  const auto& members = membership_.cluster().ranks;
  const int n_local = static_cast<int>(members.size());
  const int local = membership_.topology().local_rank(membership_.rank());
  ccl::UniqueId id;
  std::string mine;
  if (local == 0) {
    HETCCL_ASSIGN(id, library_->unique_id(n_local, context_.init_limit()));
    mine.assign(std::begin(id.bytes), std::end(id.bytes));
  }
  const auto ids = membership_.exchange(mine);
  if (!ids.ok()) {
    if (local == 0) library_->forget(id);
    return ids.status();
  }
  const std::string& bytes = ids.value()[static_cast<size_t>(members[0])];
  if (bytes.size() != sizeof id.bytes) {
    return error(ErrorCode::RemoteError, "rank %d sent a malformed cluster id", members[0]);
  }
  std::memcpy(id.bytes, bytes.data(), bytes.size());
  const ccl::Blocks& blocks = context_.options.blocks;
  auto made =
      blocks.given()
          ? library_->init_with_blocks(id, n_local, local, blocks, context_.init_limit())
          : library_->init(id, n_local, local, &context_.engine().waker(), context_.init_limit());
  HETCCL_ASSIGN(ccl_, std::move(made));
  return {};
}

Status Fabric::serve(exec::Executor& executor) {
  HETCCL_ASSIGN(auto pairs,
                Pairs::create({context_, membership_, *device_, *library_, *channels_, executor}));
  exclusively([&] { pairs_ = std::move(pairs); });
  return {};
}

Status Fabric::measure(const tune::LinkToMeasure& link, const OnException& on_exception,
                       std::vector<topology::Measurement>& mine) {
  const Cancel& cancel = *context_.cancel;
  auto& engine = context_.engine();
  const bool first = membership_.rank() == link.rank_a;
  const int peer = first ? link.rank_b : link.rank_a;
  transport::Channel& channel = *channels_->opened().at(peer);
  exec::LinkProbe probe(channel, membership_.session().communicator(), first, engine.clock());
  engine.add(probe, on_exception);
  const bool in_time =
      engine.wait([&] { return probe.done() || cancel.is_set(); }, context_.init_deadline);
  // After this the engine no longer drives the probe. Its posts must not outlive it.
  engine.remove(probe);
  Status status;
  exclusively([&] {
    status = channel.status();
    if (!probe.done() || !status.ok()) channel.close();
  });
  if (cancel.is_set()) return cancel.reason();
  if (!in_time) {
    return error(ErrorCode::Timeout, "rank %d does not answer on the link that is measured", peer);
  }
  if (!status.ok()) return status.with(format("measuring the link to rank %d", peer));
  if (first) {
    mine.push_back({link.a, link.b, probe.latency().count(), to_mbps(probe.bandwidth())});
  }
  return {};
}

Status Fabric::meet(std::span<const exec::Message> messages) {
  HETCCL_TRY(channels_->meet(messages));
  pairs_->meet(messages);
  return {};
}

Status Fabric::async_error() {
  HETCCL_TRY(ccl_->async_error());
  return pairs_->async_error();
}

void Fabric::stop() {
  if (channels_ != nullptr) channels_->stop();
  if (pairs_ != nullptr) pairs_->stop(TimePoint::max());
}

void Fabric::close(bool ended) {
  if (!ended) {
    return keep_until_exit(std::tuple(std::move(channels_), std::move(pairs_), std::move(ccl_)));
  }
  // Not under Engine::exclusively: drivers and libraries may wait for work that the engine moves.
  if (channels_ != nullptr) channels_->close();
  if (pairs_ != nullptr) pairs_->close();
  ccl_.reset();
}

}  // namespace hetccl::comm
