#include "comm/tuning_file.h"

#include <ctime>
#include <map>

#include "base/file.h"
#include "hetccl/hetccl.h"

namespace hetccl::comm {
namespace {

std::string path_of(const Config& config) {
  if (!config.tune_file.empty()) return config.tune_file;
  const std::string folder = user_cache_folder();
  return folder.empty() ? "" : folder + "/hetccl/tuning.json";
}

// On which settings the times depend: how they are tuned is none.
std::string settings_of(const Config& config) {
  Config other = config;
  other.tune = Config().tune;
  return other.agreed();
}

}  // namespace

TuningFile::TuningFile(const Config& config, const topology::Topology& topology, const Log& log)
    : path_(path_of(config)),
      log_(log),
      by_call_(tune::place_of(topology, settings_of(config), HETCCL_VERSION_CODE)),
      by_step_(
          tune::place_of(topology, settings_of(config) + "objective=step\n", HETCCL_VERSION_CODE)),
      steps_(config.tune == "step"),
      frozen_(config.tune == "frozen") {}

std::vector<tune::Learnt> TuningFile::read() const {
  if (path_.empty()) return {};
  const auto text = read_file(path_, tune::Knowledge::kMostBytes);
  if (text.ok() && text.value().empty()) return {};
  const auto knowledge =
      text.ok() ? tune::Knowledge::parse(text.value()) : Result<tune::Knowledge>(text.status());
  if (!knowledge.ok()) {
    log_.warn("HETCCL_TUNE: nothing is known from earlier jobs: %s: %s", path_.c_str(),
              knowledge.status().message().c_str());
    return {};
  }
  if (steps_) return knowledge.value().find(by_step_);
  auto found = knowledge.value().find(by_call_);
  if (!frozen_) return found;
  // What made steps short is worth more.
  std::map<tune::Key, tune::Learnt> best;
  for (const auto& one : found) best[one.key] = one;
  for (const auto& one : knowledge.value().find(by_step_)) best[one.key] = one;
  found.clear();
  for (const auto& [key, one] : best) found.push_back(one);
  return found;
}

void TuningFile::add(const std::vector<tune::Learnt>& learnt) const {
  if (path_.empty() || learnt.empty()) return;
  const auto merge = [&](std::string_view text) -> Result<std::string> {
    tune::Knowledge all;
    if (!text.empty()) {
      auto known = tune::Knowledge::parse(text);
      if (!known.ok() && known.status().code() == Code::Unsupported) return known.status();
      if (known.ok()) {
        all = std::move(known).value();
      } else {
        log_.warn("HETCCL_TUNE: %s is replaced: %s", path_.c_str(),
                  known.status().message().c_str());
      }
    }
    all.add(place(), learnt, static_cast<int64_t>(std::time(nullptr)));
    return all.dump();
  };
  const Status written = update_file(path_, tune::Knowledge::kMostBytes, merge);
  if (!written.ok())
    log_.warn("HETCCL_TUNE: what was learnt is not kept: %s", written.message().c_str());
}

}  // namespace hetccl::comm
