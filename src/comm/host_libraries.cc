#include "comm/host_libraries.h"

namespace hetccl::comm {

Result<std::shared_ptr<const adaptor::Adaptor>> choose_library(
    const std::vector<adaptor::Found>& found, std::vector<std::string>& why,
    const WaitLimit& limit) {
  std::shared_ptr<const adaptor::Adaptor> best;
  int best_score = HETCCL_OWN_SCORE;
  why.assign(found.size(), "");
  Status refused;
  for (size_t i = 0; i < found.size(); ++i) {
    Status status = found[i].adaptor.status();
    int score = 0;
    if (status.ok()) {
      const auto answer = ccl::score_of(found[i].adaptor.value(), limit);
      status = answer.status().with(found[i].path);
      if (answer.ok()) score = answer.value();
    }
    if (!status.ok()) {
      why[i] = status.message();
      if (refused.ok()) refused = status;
    } else if (score == 0) {
      why[i] = "it cannot serve this process";
    } else if (score <= best_score) {
      why[i] = format("its score is %d, and another's is %d", score, best_score);
    } else {
      best = found[i].adaptor.value();
      best_score = score;
    }
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].adaptor.ok() && why[i].empty() && found[i].adaptor.value() != best)
      why[i] = format("another's score is higher: %d", best_score);
  }
  HETCCL_TRY(refused);
  return best;
}

HostLibraries::HostLibraries(const HostRow& row, const Log& log,
                             const std::vector<adaptor::Found>& found)
    : row_(row), log_(log), found_(found) {
  std::erase_if(found_, [](const adaptor::Found& one) {
    return one.adaptor.ok() && !one.adaptor.value()->serves_hosts();
  });
}

Result<ccl::Library*> HostLibraries::library(const std::shared_ptr<Crew>& crew,
                                             const WaitLimit& limit) {
  const std::lock_guard lock(mutex_);
  if (library_ == nullptr && refused_.ok()) {
    const auto best = choose_library(found_, why_not_, limit);
    refused_ = best.status();
    if (best.ok()) {
      library_ = best.value() != nullptr ? ccl::make_adaptor_library(best.value())
                                         : row_.make_library(crew);
      log_.info("clusters of hosts use %s %s", library_->name().c_str(),
                library_->version().c_str());
    }
  }
  HETCCL_TRY(refused_);
  return library_.get();
}

std::vector<Json> HostLibraries::describe(const std::shared_ptr<Crew>& crew) {
  const std::lock_guard lock(mutex_);
  const auto own = row_.make_library(crew);
  std::vector<Json> libraries = {
      {{"available", true}, {"name", own->name()}, {"version", own->version()}}};
  for (size_t i = 0; i < found_.size(); ++i) {
    const auto& adaptor = found_[i].adaptor;
    std::string reason = why_not_.empty() ? "" : why_not_[i];
    if (!adaptor.ok()) reason = adaptor.status().message();
    std::vector<Json::Member> row = {
        {"available", reason.empty()},
        {"name", adaptor.ok() ? adaptor.value()->library->name : found_[i].path},
        {"path", found_[i].path}};
    if (adaptor.ok()) row.push_back({"version", adaptor.value()->library->version});
    if (!reason.empty()) row.push_back({"reason", reason});
    libraries.emplace_back(std::move(row));
  }
  return libraries;
}

}  // namespace hetccl::comm
