// What is measured when a communicator is made: the links between its clusters, one of each class,
// and what a small call of each cluster's library takes. All ranks learn all of it, so that all
// predict, and choose, alike.
#include <algorithm>
#include <array>

#include "comm/communicator.h"
#include "exec/link_probe.h"
#include "tune/probes.h"

namespace hetccl::comm {
namespace {

// So that the engine listens to the cluster's shared memory while a call is timed.
class TimedCalls : public exec::Driven {
 public:
  explicit TimedCalls(ccl::Communicator& ccl) : ccl_(ccl) {}
  bool poll(TimePoint /*now*/) override { return false; }
  [[nodiscard]] bool active() const override { return true; }
  [[nodiscard]] ShmSource* shm_source() override { return ccl_.shm_source(); }
  [[nodiscard]] bool silent() const override { return ccl_.shm_source() == nullptr; }

 private:
  ccl::Communicator& ccl_;
};

int64_t to_mbps(double bytes_per_second) {
  return std::max<int64_t>(1, static_cast<int64_t>(bytes_per_second * 8 / 1e6));
}

}  // namespace

Status Communicator::measure() {
  std::vector<topology::Measurement> mine;
  if (!runtime_.config().deterministic) {
    for (const tune::LinkToMeasure& link : tune::links_to_measure(topology())) {
      if (rank() == link.rank_a || rank() == link.rank_b) HETCCL_TRY(measure(link, mine));
    }
    HETCCL_TRY(measure_cluster(mine));
  }
  const std::string text = topology::to_json(mine);
  HETCCL_ASSIGN(const auto all, session_->all_gather({text.begin(), text.end()}, init_left_ms()));
  std::vector<topology::Measurement> measured;
  for (size_t who = 0; who < all.size(); ++who) {
    const std::string_view theirs(reinterpret_cast<const char*>(all[who].data()), all[who].size());
    auto list = topology::measurements_from_json(theirs);
    if (!list.ok()) return list.status().with(format("rank %zu", who));
    measured.insert(measured.end(), list.value().begin(), list.value().end());
  }
  const auto n_clusters = static_cast<int>(topology().clusters().size());
  for (const topology::Measurement& one : measured) {
    if (one.a > one.b || one.b >= n_clusters) {
      return error(Code::RemoteError, "a rank measured a link that is not there: %d to %d", one.a,
                   one.b);
    }
  }
  measured_ = std::move(measured);
  chooser_.emplace(topology(), measured_);
  return {};
}

Status Communicator::measure(const tune::LinkToMeasure& link,
                             std::vector<topology::Measurement>& mine) {
  auto& engine = runtime_.engine();
  const bool first = rank() == link.rank_a;
  const int peer = first ? link.rank_b : link.rank_a;
  transport::Channel& channel = *channels_.at(peer);
  exec::LinkProbe probe(channel, session_->communicator(), first, engine.clock());
  engine.add(probe);
  const bool in_time =
      engine.wait([&] { return probe.done() || cancel_->is_set(); }, init_deadline_);
  // After that nobody drives the probe. What it has posted must not outlive it.
  engine.remove(probe);
  Status status;
  engine.exclusively([&] {
    status = channel.status();
    if (!probe.done() || !status.ok()) channel.close();
  });
  if (cancel_->is_set()) return cancel_->reason();
  if (!in_time) {
    return error(Code::Timeout, "rank %d does not answer on the link that is measured", peer);
  }
  if (!status.ok()) return status.with(format("measuring the link to rank %d", peer));
  if (first) {
    mine.push_back({link.a, link.b, probe.latency().count(), to_mbps(probe.bandwidth())});
  }
  return {};
}

Status Communicator::measure_cluster(std::vector<topology::Measurement>& mine) {
  constexpr uint32_t kCalls = 12, kWarm = 4;
  const int self = topology().cluster_of(rank());
  const auto& cluster = topology().clusters()[static_cast<size_t>(self)];
  if (cluster.ranks.size() < 2 || topology().clusters().size() < 2) return {};
  auto& engine = runtime_.engine();
  exec::Arena memory(*device_, exec::Arena::Kind::Pinned);
  HETCCL_TRY(memory.reserve(sizeof(device::Flag)));
  auto& flag = *new (memory.data()) device::Flag();
  TimedCalls calls(*ccl_);
  engine.add(calls);
  std::array<Duration, kCalls> times{};
  Status status;
  uint32_t called = 0;
  while (called < kCalls && status.ok()) {
    const TimePoint begin = engine.clock().now();
    status = ccl_->barrier(own_stream_->native());
    if (!status.ok()) break;
    ++called;
    status = device_->write_flag(*own_stream_, flag, called);
    const auto over = [&] { return flag.reached(called) || cancel_->is_set(); };
    if (status.ok() && !engine.wait(over, init_deadline_)) {
      status = error(Code::Timeout, "ranks of its own cluster do not answer");
    }
    if (status.ok() && cancel_->is_set()) status = cancel_->reason();
    if (status.ok()) status = ccl_->async_error();
    times[called - 1] = engine.clock().now() - begin;
  }
  if (!status.ok()) {
    // What was enqueued still writes the flag.
    ccl_->abort();
    engine.wait([&] { return flag.reached(called); }, TimePoint::max());
  }
  engine.remove(calls);
  HETCCL_TRY(std::move(status));
  const auto middle = times.begin() + kWarm + (kCalls - kWarm) / 2;
  std::nth_element(times.begin() + kWarm, middle, times.end());
  if (topology().local_rank(rank()) == 0) mine.push_back({self, self, middle->count(), 0});
  return {};
}

const std::string& Communicator::topology_json() {
  std::call_once(topology_text_made_, [this] {
    const auto measured = topology().with(measured_);
    topology_text_ = measured.ok() ? measured.value().to_json() : topology().to_json();
  });
  return topology_text_;
}

}  // namespace hetccl::comm
