#include "tune/knowledge_file.h"

#include <ctime>
#include <utility>

#include "base/file.h"

namespace hetccl::tune {

KnowledgeFile::KnowledgeFile(std::string path, std::function<void(const std::string&)> warn)
    : path_(std::move(path)), warn_(std::move(warn)) {}

Knowledge KnowledgeFile::read() const {
  if (path_.empty()) return {};
  const auto text = read_file(path_, Knowledge::kMostBytes);
  if (text.ok() && text.value().empty()) return {};
  auto knowledge = text.ok() ? Knowledge::parse(text.value()) : Result<Knowledge>(text.status());
  if (knowledge.ok()) return std::move(knowledge).value();
  warn_("HETCCL_TUNE_FILE=" + path_ +
        ": nothing is known from earlier jobs: " + knowledge.status().message());
  return {};
}

void KnowledgeFile::add(const Fingerprint& fingerprint, const std::vector<Learnt>& learnt) const {
  if (path_.empty() || learnt.empty()) return;
  const auto merge = [&](std::string_view text) -> Result<std::string> {
    auto all = text.empty() ? Knowledge() : Knowledge::parse(text);
    if (!all.ok() && all.status().code() != ErrorCode::Unsupported)
      all = keep_damaged(text, all.status());
    HETCCL_TRY(all.status());
    const auto now = static_cast<int64_t>(std::time(nullptr));
    all.value().correct_times(now);
    all.value().add(fingerprint, learnt, now);
    return all.value().dump();
  };
  const Status written = update_file(path_, Knowledge::kMostBytes, merge);
  if (!written.ok()) {
    warn_("HETCCL_TUNE_FILE=" + path_ + ": what was learnt is not kept: " + written.message());
  }
}

// Keep it: it may be somebody's file, named by mistake.
Result<Knowledge> KnowledgeFile::keep_damaged(std::string_view text, const Status& why) const {
  const std::string copy = path_ + ".damaged";
  HETCCL_TRY(replace_file(copy, text));
  warn_("HETCCL_TUNE_FILE=" + path_ + " is replaced, and kept as " + copy + ": " + why.message());
  return Knowledge();
}

}  // namespace hetccl::tune
