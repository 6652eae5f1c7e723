#include "nccl-tuner/file.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/json.h"
#include "base/thread.h"
#include "nccl-tuner/calls.h"

namespace hetccl::nccl_tuner {
namespace {

std::function<void(const std::string&)> warnings_of(const NcclLog& log) {
  return [log](const std::string& line) { log.warn(line); };
}

}  // namespace

const tune::Knowledge& read_once(const std::string& path, const NcclLog& log) {
  static std::mutex mutex;
  static auto* const files = new std::map<std::string, tune::Knowledge>;  // leaked: threads use it
  const std::lock_guard lock(mutex);
  const auto found = files->find(path);
  if (found != files->end()) return found->second;
  return files->emplace(path, tune::KnowledgeFile(path, warnings_of(log)).read()).first->second;
}

std::string text_for_all(const tune::Knowledge& knowledge, size_t most, const NcclLog& log) {
  const auto all = Json::parse(knowledge.dump(), "the tuning file", tune::Knowledge::kMostBytes);
  std::vector<Json> entries;
  const auto* list = all.ok() ? all.value()["entries"].elements() : nullptr;
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const std::string* summary = (*list)[i]["summary"].text();
    if (summary != nullptr && summary->starts_with(kSummaryPrefix)) entries.push_back((*list)[i]);
  }
  if (entries.empty()) return "";
  Json chosen{{"hetccl_tuning", all.value()["hetccl_tuning"]}};
  chosen.set("entries", std::move(entries));
  std::string text = chosen.dump();
  if (text.size() <= most) return text;
  log.warn(
      format("HETCCL_TUNE_FILE: its entries of NCCL have %zu bytes, more than the %zu that "
             "ranks tell each other: only the search uses them",
             text.size(), most));
  return "";
}

TuneFile::TuneFile(std::string path, tune::Fingerprint fingerprint, NcclLog log)
    : file_(std::move(path), warnings_of(log)), fingerprint_(std::move(fingerprint)) {}

TuneFile::~TuneFile() {
  if (writer_.joinable()) writer_.join();
}

void TuneFile::start_adding(std::vector<tune::Learnt> learnt) {
  if (writes_.exchange(true)) return;
  if (writer_.joinable()) writer_.join();
  auto thread = start_thread("hetccl-tuning", [this, learnt = std::move(learnt)] {
    add(learnt);
    writes_ = false;
  });
  if (!thread.ok()) {
    writes_ = false;
    return;
  }
  writer_ = std::move(thread).value();
}

}  // namespace hetccl::nccl_tuner
