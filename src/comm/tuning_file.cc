#include "comm/tuning_file.h"

#include <set>

#include "base/file.h"
#include "hetccl/hetccl.h"

namespace hetccl::comm {
namespace {

std::string path_of(const Config& config) {
  if (!config.tune_file.empty()) return config.tune_file;
  const std::string folder = user_cache_folder();
  return folder.empty() ? "" : folder + "/hetccl/tuning.json";
}

// Returns the settings that change measured times; the tuning mode itself does not. A vendor's
// settings (NCCL_*) and links show in the costs that its library predicts.
std::string settings_of(const Config& config, const Tactics& tactics) {
  Config other = config;
  other.tune = Config().tune;
  std::string text = other.agreed();
  if (!tactics.empty())
    text += format("costs=%016llx\n", static_cast<unsigned long long>(tactics.costs()));
  return text;
}

}  // namespace

TuningFile::TuningFile(const Config& config, const topology::Topology& topology,
                       const Tactics& tactics, const Log& log)
    : file_(path_of(config), [&log](const std::string& line) { log.warn("%s", line.c_str()); }),
      by_call_(tune::fingerprint_of(topology, settings_of(config, tactics), HETCCL_VERSION_CODE)),
      by_step_(tune::fingerprint_of(topology, settings_of(config, tactics) + "objective=step\n",
                                    HETCCL_VERSION_CODE)),
      steps_(config.tune == "step"),
      frozen_(config.tune == "frozen") {}

std::vector<tune::Learnt> TuningFile::read() const {
  const tune::Knowledge knowledge = file_.read();
  if (steps_) return knowledge.find(by_step_);
  const auto by_call = knowledge.find(by_call_);
  if (!frozen_) return by_call;
  // Prefers results that shortened steps.
  auto found = knowledge.find(by_step_);
  std::set<tune::Key> keys;
  for (const auto& one : found) keys.insert(one.key);
  for (const auto& one : by_call)
    if (!keys.contains(one.key)) found.push_back(one);
  return found;
}

}  // namespace hetccl::comm
