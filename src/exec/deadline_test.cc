// The executor's report at the deadline of a call that is one vendor library call. A mark tells the
// call's end, perhaps a little later.
#include <doctest/doctest.h>

#include <thread>

#include "exec/executor.h"
#include "exec/testing.h"

namespace {

using namespace hetccl;
using namespace hetccl::exec;
using std::chrono::milliseconds;

// Acts as a GPU: the host cannot reach its memory, and its driver may block while it writes a flag.
struct DeadlineDevice : testing::QueueDevice {
  std::atomic<bool> held{false};
  std::atomic<int> flags_written{0};
  [[nodiscard]] uint32_t capabilities() const override { return device::kKernels; }
  Status write_flag(device::Stream& stream, device::Flag& flag, uint32_t value) override {
    while (held) std::this_thread::yield();
    const Status status = QueueDevice::write_flag(stream, flag, value);
    ++flags_written;
    return status;
  }
};

Program all_reduce() {
  plan::RankPlan plan;
  plan.slicing = plan::Slicing::None;
  plan.stages = 1;
  plan::Step step;
  step.kind = plan::StepKind::CclAllReduce;
  step.srcs = {{plan::Buffer::Input, 0}};
  step.dst = {plan::Buffer::Output, 0};
  plan.steps = {step};
  return Program(std::move(plan));
}

struct DeadlineFixture {
  DeadlineFixture() {
    ExecutorOptions options;
    options.device = &device;
    options.ccl = &library;
    options.n_ranks = 2;
    options.settler = settler.get();
    options.on_fault = [this](const Fault& fault) { faults.push_back(fault.status); };
    executor = std::move(Executor::create(std::move(options))).value();
    user = std::move(device.create_stream()).value();
    call.send = call.recv = memory.data();
    call.signature = {Collective::AllReduce, DataType::Int8, RedOp::Sum, 0, memory.size()};
    call.launched = start;
    call.deadline = start + milliseconds(1);
  }
  ~DeadlineFixture() {
    device.held = false;
    executor->abort();
    while (executor->active()) {
      device.progress();
      executor->poll(steady_clock().now());
    }
  }
  void launch() { REQUIRE(executor->launch(prog, {256, 3}, call, *user).ok()); }
  // Polls that many milliseconds after the launch.
  void poll_at(int ms) { executor->poll(start + milliseconds(ms)); }
  void wait_for_flag() {
    while (device.flags_written == 0) std::this_thread::yield();
  }

  DeadlineDevice device;
  testing::Library library;
  std::unique_ptr<Settler> settler = std::move(Settler::create()).value();
  std::unique_ptr<Executor> executor;
  std::unique_ptr<device::Stream> user;
  std::vector<std::byte> memory = std::vector<std::byte>(64);
  std::vector<Status> faults;
  const TimePoint start = steady_clock().now();
  Call call;
  Program prog = all_reduce();
};

}  // namespace

TEST_CASE("a call that ended in time, which no flag has told yet, does not pass its deadline") {
  DeadlineFixture f;
  f.device.held = true;
  f.launch();
  f.device.progress();
  for (int ms = 0; ms < 900; ms += 50) f.poll_at(ms);
  f.device.held = false;
  f.wait_for_flag();
  f.poll_at(905);
  f.device.progress();
  f.poll_at(910);
  CHECK(f.faults.empty());
  CHECK(f.executor->idle());
}

TEST_CASE("a call that has not ended passes its deadline, once its flag would have told") {
  DeadlineFixture f;
  device::Flag gate;
  CHECK(f.device.wait_flag(*f.user, gate, 1).ok());
  f.launch();
  f.poll_at(2);
  f.wait_for_flag();
  for (const int ms : {3, 8, 30}) {
    CHECK(f.faults.empty());
    f.device.progress();
    f.poll_at(ms);
  }
  REQUIRE(f.faults.size() == 1);
  CHECK(f.faults[0].code() == ErrorCode::Timeout);
  gate.word.store(1);
}

TEST_CASE("a driver that does not return does not put the deadline off for ever") {
  DeadlineFixture f;
  f.device.held = true;
  f.launch();
  for (int ms = 0; ms < 1000; ms += 50) f.poll_at(ms);
  CHECK(f.faults.empty());
  f.poll_at(1100);
  REQUIRE(f.faults.size() == 1);
  CHECK(f.faults[0].code() == ErrorCode::Timeout);
}
