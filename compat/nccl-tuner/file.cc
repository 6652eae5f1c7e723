#include "nccl-tuner/file.h"

#include <ctime>
#include <utility>

#include "base/file.h"
#include "base/thread.h"

namespace hetccl::nccl_tuner {

TuneFile::TuneFile(std::string path, tune::Place place, NcclLog log)
    : path_(std::move(path)), place_(std::move(place)), log_(log) {}

TuneFile::~TuneFile() {
  if (writer_.joinable()) writer_.join();
}

std::vector<tune::Learnt> TuneFile::read() const {
  if (path_.empty()) return {};
  const auto text = read_file(path_, tune::Knowledge::kMostBytes);
  if (text.ok() && text.value().empty()) return {};
  const auto knowledge =
      text.ok() ? tune::Knowledge::parse(text.value()) : Result<tune::Knowledge>(text.status());
  if (knowledge.ok()) return knowledge.value().find(place_);
  log_.warn("HETCCL_TUNE_FILE=" + path_ + ": " + knowledge.status().message() +
            "; NCCL's own choices are used");
  return {};
}

void TuneFile::add(const std::vector<tune::Learnt>& learnt) const {
  if (path_.empty() || learnt.empty()) return;
  const auto merge = [&](std::string_view text) -> Result<std::string> {
    tune::Knowledge all;
    if (!text.empty()) {
      HETCCL_ASSIGN(all, tune::Knowledge::parse(text));
    }
    all.add(place_, learnt, static_cast<int64_t>(std::time(nullptr)));
    return all.dump();
  };
  const Status written = update_file(path_, tune::Knowledge::kMostBytes, merge);
  if (!written.ok()) log_.warn("what was learnt is not kept: " + written.message());
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
