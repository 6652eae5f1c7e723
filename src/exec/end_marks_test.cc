#include "exec/end_marks.h"

#include <doctest/doctest.h>

#include "exec/testing.h"
#include "fake/patience.h"
#include "fake/thread.h"

namespace {

using namespace hetccl;
using namespace hetccl::exec;
using std::chrono::milliseconds;

constexpr auto kLimit = fake::kHang;

struct MarksDevice : testing::QueueDevice {
  std::atomic<int> flags_written{0};
  std::atomic<bool> refuses{false};                 // flags
  std::atomic<bool> held{false}, is_inside{false};  // while writing a flag
  const device::Stream* unknown = nullptr;          // recording an event on it fails

  Status record(device::Event& event, device::Stream& stream) override {
    if (&stream == unknown) return error(ErrorCode::SystemError, "no such stream");
    return QueueDevice::record(event, stream);
  }
  Status write_flag(device::Stream& stream, device::Flag& flag, uint32_t value) override {
    if (refuses) return error(ErrorCode::SystemError, "the driver is gone");
    is_inside = true;
    while (held) std::this_thread::yield();
    ++flags_written;
    return QueueDevice::write_flag(stream, flag, value);
  }
};

struct MarksFixture {
  MarksFixture() {
    first = std::move(device.create_stream()).value();
    second = std::move(device.create_stream()).value();
    marks = std::move(EndMarks::create(device, *settler)).value();
  }
  uint32_t add(device::Stream& stream) {
    const uint32_t mark = marks->next();
    CHECK(marks->add(mark, stream, steady_clock().now()).ok());
    return mark;
  }
  // Lets the device work, and looks as an engine does.
  bool ends(uint32_t mark, Duration patience = kLimit) {
    const TimePoint limit = steady_clock().now() + patience;
    while (!marks->ended(mark) && steady_clock().now() < limit) {
      marks->look(steady_clock().now());
      device.progress();
    }
    return marks->ended(mark);
  }
  MarksDevice device;
  std::unique_ptr<Settler> settler = std::move(Settler::create()).value();
  std::unique_ptr<device::Stream> first, second;
  std::unique_ptr<EndMarks> marks;
};

}  // namespace

TEST_CASE("a mark that none follows ends, and not before its stream has come there") {
  MarksFixture f;
  device::Flag gate;
  CHECK(f.device.wait_flag(*f.first, gate, 1).ok());
  const uint32_t mark = f.add(*f.first);
  CHECK(!f.ends(mark, milliseconds(20)));
  CHECK(f.marks->settled(mark));
  gate.word.store(1);
  CHECK(f.ends(mark));
  CHECK(f.device.flags_written == 1);
  const uint32_t next = f.add(*f.first);
  CHECK(!f.marks->settled(next));
  CHECK(!f.marks->ended(next));
  CHECK(f.ends(next));
}

TEST_CASE("marks in a row share flags") {
  MarksFixture f;
  uint32_t last = 0;
  for (int i = 0; i < 640; ++i) last = f.add(*f.first);
  CHECK(f.ends(last));
  CHECK(f.device.flags_written >= 20);
  CHECK(f.device.flags_written <= 21);
}

TEST_CASE("a mark behind another stream's ends after it") {
  MarksFixture f;
  device::Flag gate;
  CHECK(f.device.wait_flag(*f.first, gate, 1).ok());
  const uint32_t held = f.add(*f.first), free = f.add(*f.second);
  CHECK(!f.ends(free, milliseconds(20)));
  gate.word.store(1);
  CHECK(f.ends(free));
  CHECK(f.marks->ended(held));
}

TEST_CASE("a mark that cannot be placed ends no other") {
  MarksFixture f;
  device::Flag gate;
  CHECK(f.device.wait_flag(*f.first, gate, 1).ok());
  const uint32_t held = f.add(*f.first);
  f.device.unknown = f.second.get();
  CHECK(!f.marks->add(f.marks->next(), *f.second, steady_clock().now()).ok());
  CHECK(!f.marks->failed());
  CHECK(!f.ends(held, milliseconds(20)));
  gate.word.store(1);
  CHECK(f.ends(held));
  CHECK(f.ends(f.add(*f.first)));
}

TEST_CASE("marks end where a driver fails, and say why") {
  MarksFixture f;
  f.device.refuses = true;
  const uint32_t mark = f.add(*f.first);
  CHECK(f.ends(mark));
  CHECK(f.marks->failed());
  CHECK(f.marks->failure().message() == "the driver is gone");
  f.device.refuses = false;
  CHECK(!f.marks->add(f.marks->next(), *f.first, steady_clock().now()).ok());
  const size_t blocks = f.device.blocks;
  f.marks.reset();
  CHECK(f.device.blocks == blocks);  // the device may still write there
}

TEST_CASE(
    "marks are not destroyed while the settler is inside the driver, nor settled afterwards") {
  MarksFixture f;
  f.device.held = true;
  f.add(*f.first);
  f.marks->ask();
  while (!f.device.is_inside) std::this_thread::yield();
  std::atomic<bool> gone{false};
  fake::Thread owner([&] {
    f.marks.reset();
    gone = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(!gone);
  f.device.held = false;
  owner.join();
  CHECK(f.device.blocks == 0);
}
