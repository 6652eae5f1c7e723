#include "exec/recorder.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>

#include "fake/thread.h"

namespace hetccl::exec {
namespace {

TimePoint after(int64_t ns) {
  return TimePoint(std::chrono::nanoseconds(ns));
}

constexpr uint64_t kLast = 1024;

// Derives every field from the sequence number, so that a torn record shows.
Record record_of(uint64_t n) {
  Record record;
  record.sequence = n;
  record.signature = {Collective::Broadcast, DataType::Int16, RedOp::Max, -static_cast<int32_t>(n),
                      n * 3};
  record.slice_elements = n * 5;
  record.slices = static_cast<uint32_t>(n % 64);
  record.launched = after(static_cast<int64_t>(n) * 7);
  record.sends = n % 3 == 0;
  record.by_library = n % 5 == 0;
  record.tag = static_cast<uint32_t>(n * 11);
  record.number = n * 13;
  return record;
}

bool intact(const Record& record) {
  const Record expected = record_of(record.sequence);
  return record.signature == expected.signature &&
         record.slice_elements == expected.slice_elements && record.slices == expected.slices &&
         record.launched == expected.launched && record.sends == expected.sends &&
         record.by_library == expected.by_library && record.tag == expected.tag &&
         record.number == expected.number;
}

TEST_CASE("the last 1,024 operations are remembered, with their times and states") {
  const auto recorder = std::make_unique<Recorder>();
  CHECK(recorder->records().empty());
  CHECK(!recorder->find(0));
  for (uint64_t n = 0; n < 3000; ++n) recorder->launch(record_of(n));
  recorder->start(2998, after(1));
  recorder->move(2998, 10);
  recorder->move(2998, 5);
  recorder->end(2998, Record::State::Completed, after(2));
  recorder->end(2999, Record::State::Failed, after(3));
  const auto records = recorder->records();
  REQUIRE(records.size() == kLast);
  for (size_t i = 0; i < records.size(); ++i) {
    CHECK(records[i].sequence == 3000 - kLast + i);
    CHECK(intact(records[i]));
  }
  const Record& completed = records[records.size() - 2];
  CHECK(completed.state == Record::State::Completed);
  CHECK(completed.moved_bytes == 15);
  CHECK(completed.started == after(1));
  CHECK(completed.completed == after(2));
  CHECK(records.back().state == Record::State::Failed);
  CHECK(records.front().state == Record::State::Launched);
  CHECK(recorder->called() == 3000);
  CHECK(recorder->ended() == 3000);
  CHECK(!recorder->find(3000 - kLast - 1));
  CHECK(recorder->find(2999)->signature.count == 2999 * 3);
}

TEST_CASE("who reads while operations are launched gets whole records") {
  const auto recorder = std::make_unique<Recorder>();
  std::atomic<bool> enough{false};
  fake::Thread writer([&] {
    for (uint64_t n = 0; !enough.load(); ++n) recorder->launch(record_of(n));
  });
  size_t seen = 0, torn = 0;
  while (seen < 2'000 || recorder->called() < kLast) {
    for (const Record& record : recorder->records()) {
      ++seen;
      if (!intact(record)) ++torn;
    }
  }
  enough.store(true);
  writer.join();
  CHECK(torn == 0);
  CHECK(recorder->records().size() == kLast);
}

}  // namespace
}  // namespace hetccl::exec
