// Measures, when a communicator is made, the links between its clusters (one of each class, or all)
// and a small all-reduce. All ranks learn all of it, so that all predict, and choose, alike.
#include <algorithm>
#include <array>

#include "base/keep.h"
#include "comm/communicator.h"
#include "exec/link_probe.h"
#include "tune/probes.h"
#include "tune/tactics_json.h"

namespace hetccl::comm {
namespace {

// Of an all-reduce that is small, and in which every rank has a part.
constexpr uint64_t kMeasuredElements = 256;
constexpr std::array kMeasuredTypes = {DataType::Int32, DataType::Float32, DataType::Uint32};

int64_t to_mbps(double bytes_per_second) {
  return std::max<int64_t>(1, static_cast<int64_t>(bytes_per_second * 8 / 1e6));
}

}  // namespace

Status Communicator::measure() {
  std::vector<topology::Measurement> mine;
  if (!config_.deterministic) {
    const bool all = config_.wire_below_mbps > 0;  // the slowest decides what is encoded
    for (const tune::LinkToMeasure& link : tune::links_to_measure(topology(), all)) {
      if (rank() == link.rank_a || rank() == link.rank_b) HETCCL_TRY(measure(link, mine));
    }
    HETCCL_TRY(measure_calls(mine));
  }
  const std::string text = mine.empty() ? "" : topology::to_json(mine);
  HETCCL_ASSIGN(const auto all, session_->all_gather({text.begin(), text.end()}, init_left_ms()));
  std::vector<topology::Measurement> measured;
  for (size_t who = 0; who < all.size(); ++who) {
    if (all[who].empty()) continue;
    const std::string_view theirs(reinterpret_cast<const char*>(all[who].data()), all[who].size());
    auto list = topology::measurements_from_json(theirs, topology());
    if (!list.ok()) return list.status().with(format("rank %zu", who));
    measured.insert(measured.end(), list.value().begin(), list.value().end());
  }
  measured_ = std::move(measured);
  programs_ = std::make_unique<Programs>(rank(), topology(), measured_, config_);
  return open_tuning();
}

// Notes may come as soon as tuning is open.
Status Communicator::open_tuning() {
  const Config& config = config_;
  if (config.deterministic) return {};
  const bool off = config.tune == "off";
  if (!off) HETCCL_TRY(exchange_tactics());
  const bool alone = topology().clusters().size() < 2;
  if (alone && tactics_.empty()) return {};
  Tuning::Options options;
  options.searches = !off && config.tune != "frozen";
  options.by_steps = config.tune == "step";
  options.timing_costs = alone;
  options.budget = static_cast<double>(config.tune_budget) / 100;
  options.failed = [this] { return verdict_.failed(); };
  tuning_ = std::make_unique<Tuning>(*session_, runtime_.engine(), std::move(options));
  if (off) return {};
  tuning_file_ = std::make_unique<TuningFile>(config, topology(), tactics_, log_);
  HETCCL_ASSIGN(const auto known, exchange_knowledge());
  tuning_->know(known);
  return {};
}

// All ranks tell each other what their libraries can be told.
Status Communicator::exchange_tactics() {
  std::optional<Tactics> mine;
  if (ccl_ != nullptr) mine = ccl_->tactics();
  const std::string text = tune::to_json(mine).dump();
  HETCCL_ASSIGN(const auto all, session_->all_gather({text.begin(), text.end()}, init_left_ms()));
  std::vector<std::optional<Tactics>> told;
  for (size_t who = 0; who < all.size(); ++who) {
    const std::string what = format("the tactics of rank %zu", who);
    const std::string_view theirs(reinterpret_cast<const char*>(all[who].data()), all[who].size());
    HETCCL_ASSIGN(const Json json, Json::parse(theirs, what.c_str(), theirs.size()));
    told.push_back(tune::tactics_from_json(json));
  }
  tactics_ = tune::common_tactics(told);
  return {};
}

// Rank 0 tells the others what it has read. Returns what can be done here.
Result<std::vector<tune::Learnt>> Communicator::exchange_knowledge() {
  std::vector<uint8_t> mine;
  if (rank() == 0) {
    const auto all = tuning_file_->read();
    const auto told = tune::first_that_fit(all, bootstrap::kMaxGathered);
    if (told.size() < all.size())
      log_.warn(
          "HETCCL_TUNE_FILE=%s: %zu entries are of jobs like this one; the newest %zu are used",
          tuning_file_->path().c_str(), all.size(), told.size());
    const std::string text = tune::to_json(told).dump();
    mine.assign(text.begin(), text.end());
  }
  HETCCL_ASSIGN(const auto all, session_->all_gather(mine, init_left_ms()));
  const std::string_view text(reinterpret_cast<const char*>(all[0].data()), all[0].size());
  HETCCL_ASSIGN(const Json json, Json::parse(text, "rank 0's tuning", all[0].size()));
  std::vector<tune::Learnt> known = tune::learnt_from_json(json);
  std::erase_if(known, [this](const tune::Learnt& one) {
    return !programs_->check(one.key, one.setting, tactics_).ok();
  });
  return known;
}

// In the background: files may be slow.
void Communicator::keep_learnt() {
  if (tuning_file_ == nullptr || rank() != 0 || !tuning_->take_news()) return;
  const Status posted = chores_.post([this] { tuning_file_->add(tuning_->learnt()); });
  if (!posted.ok()) log_.warn("HETCCL_TUNE: %s", posted.message().c_str());
}

Status Communicator::measure(const tune::LinkToMeasure& link,
                             std::vector<topology::Measurement>& mine) {
  auto& engine = runtime_.engine();
  const bool first = rank() == link.rank_a;
  const int peer = first ? link.rank_b : link.rank_a;
  transport::Channel& channel = *channels_->opened().at(peer);
  exec::LinkProbe probe(channel, session_->communicator(), first, engine.clock());
  engine.add(probe, [this](const Status& why) { on_exception(why); });
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

// By an executor of its own: these calls are nobody's, and stand in no record. Where the libraries
// add up no type alike, nothing is measured.
Status Communicator::measure_calls(std::vector<topology::Measurement>& mine) {
  if (topology().clusters().size() < 2) return {};
  const auto added = [&](DataType type) { return topology().reductions().has(type, RedOp::Sum); };
  const auto* const type = std::find_if(kMeasuredTypes.begin(), kMeasuredTypes.end(), added);
  if (type == kMeasuredTypes.end()) return {};
  exec::Call call;
  call.signature = {.collective = Collective::AllReduce, .type = *type, .count = kMeasuredElements};
  auto memory = std::make_unique<exec::Arena>(*device_, exec::Arena::Kind::Device);
  HETCCL_TRY(memory->reserve(call.signature.count * size_of(call.signature.type)));
  call.send = call.recv = memory->data();
  call.deadline = init_deadline_;
  HETCCL_ASSIGN(auto executor, exec::Executor::create(executor_options()));
  HETCCL_ASSIGN(auto plan, plan::plan(rank(), {Collective::AllReduce}, topology()));
  exec::Program program(std::move(plan));
  auto& engine = runtime_.engine();
  engine.exclusively([&] {
    for (const auto& [peer, channel] : channels_->opened()) {
      executor->connect({peer, channel.get(), true, nullptr, channels_->is_direct(peer)});
    }
    measuring_ = executor.get();
  });
  engine.add(*executor, [this](const Status& why) { on_exception(why); });
  const auto time = time_calls(*executor, program, call);
  if (!time.ok()) {
    report_first(time.status());
    // What was enqueued still uses its memory.
    engine.exclusively([&] { executor->abort(); });
    engine.wait([&] { return executor->idle(); }, engine.clock().now() + Verdict::kLastWait);
  }
  engine.exclusively([&] { measuring_ = nullptr; });
  engine.remove(*executor);
  if (!executor->idle()) {
    keep_until_exit(std::move(memory));
    keep_until_exit(std::move(executor));
  }
  if (!time.ok()) return time.status();
  const int self = topology().cluster_of(rank());
  if (topology().local_rank(rank()) == 0) mine.push_back({self, self, time.value().count(), 0});
  return {};
}

Result<Duration> Communicator::time_calls(exec::Executor& executor, exec::Program& program,
                                          exec::Call call) {
  constexpr size_t kCalls = 60, kWarm = 12;
  // What a rank takes in most calls and exceeds in some: the slowest of all takes about as long.
  constexpr size_t kOfTimed = 36;
  std::array<Duration, kCalls> times{};
  for (Duration& time : times) {
    HETCCL_ASSIGN(time, time_call(executor, program, call));
    ++call.sequence;
  }
  std::sort(times.begin() + kWarm, times.end());
  return times[kWarm + kOfTimed - 1];
}

Result<Duration> Communicator::time_call(exec::Executor& executor, exec::Program& program,
                                         exec::Call call) {
  constexpr plan::Choice kOneSlice{.slice_bytes = UINT32_MAX};
  auto& engine = runtime_.engine();
  if (cancel_->is_set()) return cancel_->reason();  // or else `stop` ends what is launched
  call.launched = engine.clock().now();
  HETCCL_ASSIGN(const Ticket ticket, executor.launch(program, kOneSlice, call, *own_stream_));
  const auto over = [&] { return ticket.done() || cancel_->is_set(); };
  if (!engine.wait(over, init_deadline_)) {
    return error(Code::Timeout, "ranks do not answer while their calls are measured");
  }
  if (cancel_->is_set()) return cancel_->reason();
  HETCCL_TRY(ccl_->async_error());
  return engine.clock().now() - call.launched;
}

const std::string& Communicator::topology_json() {
  std::call_once(topology_text_made_, [this] {
    const auto measured = topology().with(measured_);
    topology_text_ = measured.ok() ? measured.value().to_json() : topology().to_json();
  });
  return topology_text_;
}

}  // namespace hetccl::comm
