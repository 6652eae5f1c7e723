// Measures, when a communicator is made, the links between its clusters (one of each class, or all)
// and a small all-reduce. All ranks learn all results, so that all predict and choose alike.
#include <algorithm>
#include <array>

#include "base/keep.h"
#include "comm/dispatch.h"
#include "tune/probes.h"
#include "tune/tactics_json.h"

namespace hetccl::comm {
namespace {

// The size of a small all-reduce in which every rank has a part.
constexpr uint64_t kMeasuredElements = 256;
constexpr std::array kMeasuredTypes = {DataType::Int32, DataType::Float32, DataType::Uint32};

}  // namespace

Status Dispatch::measure() {
  std::vector<topology::Measurement> mine;
  const Config& config = context_.config;
  if (!config.deterministic) {
    const bool all = config.wire_below_mbps > 0;  // the slowest link decides what is encoded
    for (const tune::LinkToMeasure& link : tune::links_to_measure(topology(), all)) {
      if (rank() == link.rank_a || rank() == link.rank_b)
        HETCCL_TRY(fabric_.measure(link, on_exception(), mine));
    }
    HETCCL_TRY(measure_calls(mine));
  }
  HETCCL_TRY(membership_.share(mine));
  programs_ = std::make_unique<Programs>(rank(), topology(), membership_.measured(), config);
  return open_tuning();
}

// Notes may come as soon as tuning is open.
Status Dispatch::open_tuning() {
  const Config& config = context_.config;
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
  tuning_ = std::make_unique<Tuning>(membership_.session(), context_.engine(), std::move(options));
  if (off) return {};
  tuning_file_ = std::make_unique<TuningFile>(config, topology(), tactics_, context_.log);
  return exchange_knowledge();
}

// Exchanges the tactics that each rank's library accepts.
Status Dispatch::exchange_tactics() {
  HETCCL_ASSIGN(const auto all,
                membership_.exchange(tune::to_json(fabric_.ccl().tactics()).dump()));
  std::vector<std::optional<Tactics>> told;
  for (size_t who = 0; who < all.size(); ++who) {
    const std::string what = format("the tactics of rank %zu", who);
    HETCCL_ASSIGN(const Json json, Json::parse(all[who], what.c_str(), all[who].size()));
    told.push_back(tune::tactics_from_json(json));
  }
  tactics_ = tune::common_tactics(told);
  return {};
}

// Sends what rank 0 read from the file to the others. Tuning takes what this communicator can do.
Status Dispatch::exchange_knowledge() {
  std::string mine;
  if (rank() == 0) {
    const auto all = tuning_file_->read();
    const auto told = tune::first_that_fit(all, bootstrap::kMaxGathered);
    if (told.size() < all.size())
      context_.log.warn(
          "HETCCL_TUNE_FILE=%s: %zu entries are of jobs like this one; the newest %zu are used",
          tuning_file_->path().c_str(), all.size(), told.size());
    mine = tune::to_json(told).dump();
  }
  HETCCL_ASSIGN(const auto all, membership_.exchange(mine));
  HETCCL_ASSIGN(const Json json, Json::parse(all[0], "rank 0's tuning", all[0].size()));
  std::vector<tune::Learnt> known = tune::learnt_from_json(json);
  std::erase_if(known, [this](const tune::Learnt& one) {
    return !programs_->check(one.key, one.setting, tactics_).ok();
  });
  tuning_->add_learnt(known);
  return {};
}

// Writes in the background, because files may be slow.
void Dispatch::keep_learnt() {
  if (tuning_file_ == nullptr || rank() != 0 || !tuning_->poll_new_results()) return;
  const Status posted = chores_.post([this] { tuning_file_->add(tuning_->learnt()); });
  if (!posted.ok()) context_.log.warn("HETCCL_TUNE: %s", posted.message().c_str());
}

// Measures with a separate executor, so that these calls appear in no record of the user. Measures
// nothing if no type is summed by the libraries of all clusters.
Status Dispatch::measure_calls(std::vector<topology::Measurement>& mine) {
  if (topology().clusters().size() < 2) return {};
  const auto added = [&](DataType type) { return topology().reductions().has(type, RedOp::Sum); };
  const auto* const type = std::find_if(kMeasuredTypes.begin(), kMeasuredTypes.end(), added);
  if (type == kMeasuredTypes.end()) return {};
  exec::Call call;
  call.signature = {.collective = Collective::AllReduce, .type = *type, .count = kMeasuredElements};
  auto memory = std::make_unique<exec::Arena>(*device_, exec::Arena::Kind::Device);
  HETCCL_TRY(memory->reserve(call.signature.count * size_of(call.signature.type)));
  call.send = call.recv = memory->data();
  call.deadline = context_.init_deadline;
  HETCCL_ASSIGN(auto executor, exec::Executor::create(executor_options()));
  HETCCL_ASSIGN(auto plan, plan::plan(rank(), {Collective::AllReduce}, topology()));
  exec::Program program(std::move(plan));
  auto& engine = context_.engine();
  fabric_.exclusively([&] {
    const Channels& channels = fabric_.channels();
    for (const auto& [peer, channel] : channels.opened()) {
      exec::Peer way = channels.way_to(peer);
      way.channel = channel.get();
      executor->connect(way);
    }
    measuring_ = executor.get();
  });
  engine.add(*executor, on_exception());
  const auto time = time_calls(*executor, program, call);
  if (!time.ok()) {
    // Report this rank's own failure before others see it close its connections.
    const ErrorCode code = time.status().code();
    const bool own = code != ErrorCode::RemoteError && code != ErrorCode::Timeout;
    if (own && !context_.cancel->is_set() && !verdict_.failed()) report(rank(), time.status());
    // Enqueued work still uses its memory.
    fabric_.exclusively([&] { executor->abort(); });
    engine.wait([&] { return executor->idle(); }, engine.clock().now() + Verdict::kLastWait);
  }
  fabric_.exclusively([&] { measuring_ = nullptr; });
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

Result<Duration> Dispatch::time_calls(exec::Executor& executor, exec::Program& program,
                                      exec::Call call) {
  constexpr plan::Choice kOneSlice{.slice_bytes = UINT32_MAX};
  constexpr size_t kCalls = 60, kWarm = 12;
  // Takes the third quartile: the slowest of all ranks takes about that long in most calls.
  constexpr size_t kOfTimed = 36;
  const Cancel& cancel = *context_.cancel;
  auto& engine = context_.engine();
  std::array<Duration, kCalls> times{};
  for (Duration& time : times) {
    if (cancel.is_set()) return cancel.reason();  // else `stop` ends the launched call
    call.launched = engine.clock().now();
    HETCCL_ASSIGN(const Ticket ticket, executor.launch(program, kOneSlice, call, *own_stream_));
    const auto over = [&] { return ticket.done() || cancel.is_set(); };
    if (!engine.wait(over, context_.init_deadline)) {
      return error(ErrorCode::Timeout, "ranks do not answer while their calls are measured");
    }
    if (cancel.is_set()) return cancel.reason();
    HETCCL_TRY(fabric_.ccl().async_error());
    time = engine.clock().now() - call.launched;
    ++call.sequence;
  }
  std::sort(times.begin() + kWarm, times.end());
  return times[kWarm + kOfTimed - 1];
}

}  // namespace hetccl::comm
