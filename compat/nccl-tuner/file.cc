#include "nccl-tuner/file.h"

#include <utility>

#include "base/thread.h"

namespace hetccl::nccl_tuner {

TuneFile::TuneFile(std::string path, tune::Place place, NcclLog log)
    : file_(std::move(path), [log](const std::string& line) { log.warn(line); }),
      place_(std::move(place)) {}

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
