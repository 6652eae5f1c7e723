#include "exec/batch.h"

#include <doctest/doctest.h>

#include <array>

#include "exec/testing.h"

namespace {

using namespace hetccl;
using namespace hetccl::exec;
using Launches = Batch::Launches;

/// Launches batched work one by one, and counts it.
class BatchingDevice : public exec::testing::QueueDevice {
 public:
  std::vector<size_t> launches;  // pieces of work in each launch
  int kernels = 0;               // copies by kernels
  bool spun = false;
  bool refuses = false;

  [[nodiscard]] uint32_t capabilities() const override {
    return QueueDevice::capabilities() | device::kBatches;
  }
  Status run(device::Stream& stream, std::span<const device::StreamWork> work,
             bool spins) override {
    if (refuses) return error(ErrorCode::SystemError, "the test refuses");
    launches.push_back(work.size());
    spun = spins;
    for (const device::StreamWork& one : work) HETCCL_TRY(enqueue(stream, one));
    return {};
  }
  Status copy_soon(device::Stream& stream, void* dst, const void* src, size_t bytes) override {
    ++kernels;
    return copy(stream, dst, src, bytes);
  }
};

struct Calls {
  BatchingDevice device;
  std::unique_ptr<device::Stream> one = std::move(device.create_stream()).value();
  std::unique_ptr<device::Stream> other = std::move(device.create_stream()).value();
  std::array<device::Flag, 3> flags;
  int from = 7, between = 0, to = 0;

  // A message out, and its answer.
  void enqueue(Batch& batch) {
    CHECK(batch.copy(*one, &between, &from, sizeof from).ok());
    CHECK(batch.write_flag(*one, flags[0], 1).ok());
    CHECK(batch.wait_flag(*one, flags[1], 1).ok());
    CHECK(batch.copy(*one, &to, &between, sizeof to).ok());
    CHECK(batch.write_flag(*one, flags[2], 1).ok());
  }
  void drain() {
    while (device.progress()) {
    }
  }
};

}  // namespace

TEST_CASE("work of one stream is launched together, at the flush, in its order") {
  for (const auto launches : {Launches::Spin, Launches::Yield}) {
    Calls calls;
    Batch batch(calls.device, launches);
    calls.enqueue(batch);
    CHECK(calls.device.launches.empty());
    REQUIRE(batch.flush().ok());
    CHECK(calls.device.launches == std::vector<size_t>{5});
    CHECK(calls.device.spun == (launches == Launches::Spin));
    calls.drain();
    CHECK(calls.flags[0].reached(1));
    CHECK_FALSE(calls.flags[2].reached(1));
    calls.between = 9;
    calls.flags[1].word.store(1);
    calls.drain();
    CHECK(calls.flags[2].reached(1));
    CHECK(calls.to == 9);
    REQUIRE(batch.flush().ok());  // with nothing collected
    CHECK(calls.device.launches.size() == 1);
  }
}

TEST_CASE("work of another stream comes behind what was held back") {
  Calls calls;
  Batch batch(calls.device, Launches::Spin);
  REQUIRE(batch.write_flag(*calls.one, calls.flags[0], 1).ok());
  REQUIRE(batch.write_flag(*calls.other, calls.flags[1], 1).ok());
  CHECK(calls.device.launches == std::vector<size_t>{1});
  REQUIRE(batch.flush().ok());
  CHECK(calls.device.launches == std::vector<size_t>{1, 1});
}

TEST_CASE("where launches block nothing is held back, and no copy is a kernel") {
  Calls calls;
  Batch batch(calls.device, Launches::Block);
  calls.enqueue(batch);
  CHECK(calls.device.launches.empty());
  CHECK(calls.device.kernels == 0);
  calls.drain();
  CHECK(calls.flags[0].reached(1));
}

TEST_CASE("what a device refuses is told once, and dropped") {
  Calls calls;
  Batch batch(calls.device, Launches::Spin);
  calls.device.refuses = true;
  REQUIRE(batch.write_flag(*calls.one, calls.flags[0], 1).ok());
  CHECK_FALSE(batch.flush().ok());
  CHECK(batch.flush().ok());
}
