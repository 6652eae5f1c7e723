// The user's calls that read and set tuning.
#include <algorithm>

#include "base/encoding.h"
#include "comm/dispatch.h"
#include "plan/call.h"

namespace hetccl::comm {

tune::Limits Dispatch::limits() const {
  const Config& config = context_.config;
  tune::Limits limits;
  limits.slice_bytes = static_cast<uint64_t>(config.slice_bytes);
  limits.depth = static_cast<uint32_t>(config.depth);
  limits.tactics = tactics_;
  limits.tcp_streams = static_cast<uint16_t>(fabric_.channels().streams());
  limits.keep_bits = config.tune_bits == "keep";
  if (!on_host_memory()) limits.gpu_blocks = static_cast<uint16_t>(config.gpu_blocks);
  const auto& ranks = topology().infos();
  if (std::any_of(ranks.begin(), ranks.end(), [](const auto& one) { return one.host_access; }))
    limits.host_threads = static_cast<uint16_t>(context_.runtime.host_threads());
  return limits;
}

std::string Dispatch::tuning_json() {
  Json json = tuning_ != nullptr ? tuning_->describe() : Json();
  json.set("mode", tuning_ != nullptr ? context_.config.tune : "off");
  const TuningFile file(context_.config, topology(), tactics_, context_.log);
  json.set("place", file.fingerprint().digest);
  json.set("summary", file.fingerprint().summary);
  json.set("file", file.path());
  return json.dump();
}

void Dispatch::step() {
  if (context_.phase != Phase::Ready || tuning_ == nullptr) return;
  tuning_->step(context_.engine().clock().now());
}

Status Dispatch::set_tuning(std::string_view json) {
  constexpr size_t kMostBytes = 4096;
  HETCCL_TRY(check_ready());
  HETCCL_ASSIGN(const Json given, Json::parse(json, "the setting", kMostBytes));
  const auto key = tune::key_from_json(given["key"]);
  if (!key) return error(ErrorCode::InvalidArgument, "\"key\" is no key of hetcclCommGetTuning's");
  const auto setting = tune::setting_from_json(given["setting"]);
  if (!setting) {
    return error(ErrorCode::InvalidArgument,
                 "\"setting\" is none: {algorithm, slice_bytes, depth, tcp_streams, gpu_blocks, "
                 "host_threads, nccl_algorithm, nccl_protocol, nccl_channels}");
  }
  if (tuning_ == nullptr) {
    return error(
        ErrorCode::InvalidUsage,
        "nothing can be tuned here: HETCCL_DETERMINISTIC=1 is set, or all ranks are in one "
        "cluster whose library decides alone (one of GPUs can be told with "
        "HETCCL_TUNE=online, step or frozen: docs/tuning.md)");
  }
  std::lock_guard lock(launch_mutex_);
  HETCCL_TRY(programs_->check(*key, *setting, tactics_));
  tuning_->set(*key, *setting);
  return {};
}

Result<double> Dispatch::predict(const CollectiveArguments& arguments) {
  HETCCL_TRY(check(arguments));
  if (topology().clusters().size() < 2) {
    return error(ErrorCode::Unsupported,
                 "rank %d: %s: all ranks are in one cluster, and how long its library takes is not "
                 "known",
                 rank(), name_of(arguments.signature).c_str());
  }
  const uint64_t block = elements_of_a_block(arguments, n_ranks());
  const std::lock_guard lock(launch_mutex_);
  Signature signature = arguments.signature;
  signature.encoding = programs_->encoding_for(signature, block);
  return programs_->predict(signature, block);
}

Result<std::string> Dispatch::tuning_space(const Signature& signature) {
  HETCCL_TRY(check_ready());
  HETCCL_TRY(plan::check(signature, static_cast<uint32_t>(n_ranks())));
  HETCCL_TRY(plan::check_support(signature, topology()));
  const uint64_t block = signature.count;
  std::lock_guard lock(launch_mutex_);
  std::vector<Json> subspaces;
  for (const tune::Subspace& one : programs_->space(signature, block, limits())) {
    Json axes(std::vector<Json::Member>{});
    for (const tune::Axis& axis : one.axes)
      axes.set(tune::row_of(axis.parameter).name, axis.values);
    subspaces.push_back({{"start", tune::to_json(one.start)}, {"axes", std::move(axes)}});
  }
  return Json{{"key", tune::to_json(tune::key_of(signature, block, topology()))},
              {"encoding", name_of(programs_->encoding_for(signature, block))},
              {"subspaces", std::move(subspaces)}}
      .dump();
}

}  // namespace hetccl::comm
