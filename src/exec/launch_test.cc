// A launch that fails half-way, or blocks in a library: its enqueued work drains before its memory
// is freed, messages move meanwhile, and an abort reaches it.
#include <doctest/doctest.h>

#include "exec/executor.h"
#include "exec/testing.h"

namespace {

using hetccl::Collective;
using hetccl::DataType;
using hetccl::ErrorCode;
using hetccl::RedOp;
using hetccl::Status;
using hetccl::TaskQueue;
using hetccl::exec::Call;
using hetccl::exec::Executor;
using hetccl::exec::ExecutorOptions;
using hetccl::exec::Program;
using hetccl::exec::testing::Library;
using hetccl::exec::testing::QueueDevice;
using hetccl::plan::Buffer;
using hetccl::plan::Step;
using hetccl::plan::StepKind;

// Counts posts; `completed` of them are complete, each way.
class Channel : public hetccl::transport::Channel {
 public:
  int posted = 0;
  uint64_t completed = 0;
  void post_send(const hetccl::transport::Parcel&) override { ++posted; }
  void post_recv(const hetccl::transport::Parcel&) override { ++posted; }
  [[nodiscard]] uint64_t sends_completed() const override { return completed; }
  [[nodiscard]] uint64_t recvs_completed() const override { return completed; }
  [[nodiscard]] const Status& status() const override { return status_; }
  void close() override {}

 private:
  Status status_;
};

// Copies into scratch, exchanges it with rank 1, then calls the library's broadcast.
Program program() {
  hetccl::plan::RankPlan plan;
  plan.scratch_blocks = 2;
  plan.stages = 3;
  Step copy;
  copy.kind = StepKind::Copy;
  copy.srcs = {{Buffer::Input, 0}};
  copy.dst = {Buffer::Scratch, 0};
  Step send;
  send.kind = StepKind::Send;
  send.stage = 1;
  send.deps = {0};
  send.peer = 1;
  send.srcs = {{Buffer::Scratch, 0}};
  Step recv;
  recv.kind = StepKind::Recv;
  recv.stage = 1;
  recv.peer = 1;
  recv.dst = {Buffer::Scratch, 1};
  Step broadcast;
  broadcast.kind = StepKind::CclBroadcast;
  broadcast.stage = 2;
  broadcast.deps = {2};
  broadcast.shards = {{0, {Buffer::Scratch, 1}, {Buffer::Output, 0}}};
  plan.steps = {copy, send, recv, broadcast};
  return Program(std::move(plan));
}

struct LaunchFixture {
  LaunchFixture() {
    ExecutorOptions options;
    options.device = &device;
    options.ccl = &library;
    options.n_ranks = 2;
    options.on_fault = [this](const hetccl::exec::Fault& fault) { faults.push_back(fault.status); };
    auto made = Executor::create(std::move(options));
    REQUIRE(made.ok());
    executor = std::move(made).value();
    executor->connect({1, &channel});
    user = std::move(device.create_stream()).value();
    call.send = send.data();
    call.recv = recv.data();
    call.signature = {Collective::AllReduce, DataType::Int8, RedOp::Sum, 0, send.size()};
  }
  auto launch(size_t slice_bytes = 256) {
    return executor->launch(prog, {slice_bytes, 3}, call, *user);
  }
  void drive() {
    const auto now = hetccl::steady_clock().now();
    for (int round = 0; round < 100 && executor->active(); ++round) {
      device.progress();
      executor->poll(now);
    }
  }
  void check_drained() {
    CHECK(executor->idle());
    for (auto* stream : device.polled) {
      CHECK(static_cast<TaskQueue*>(stream->native())->empty());
    }
    executor.reset();
    CHECK(device.blocks == 0);
  }

  QueueDevice device;
  Library library;
  Channel channel;
  std::vector<Status> faults;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<hetccl::device::Stream> user;
  std::vector<std::byte> send = std::vector<std::byte>(1024), recv = send;
  Call call;
  Program prog = program();
};

}  // namespace

TEST_CASE("a launch that a library refuses half-way stays in flight until the abort") {
  for (int refused = 0; refused < 4; ++refused) {
    CAPTURE(refused);
    LaunchFixture f;
    f.library.refused = refused;
    const auto number = f.launch();
    CHECK(number.status().message().find("the library refused") != std::string::npos);
    f.drive();
    CHECK(f.executor->active());
    CHECK(f.channel.posted == 0);
    f.executor->abort();
    f.drive();
    f.check_drained();
  }
}

TEST_CASE("messages move while the launch of their collective blocks") {
  LaunchFixture f;
  f.library.meanwhile = [&] { f.drive(); };
  CHECK(f.launch().ok());
  CHECK(f.channel.posted > 0);
  f.executor->abort();
  f.drive();
  f.check_drained();
}

TEST_CASE("an abort reaches a collective whose launch blocks, and ends those that come later") {
  LaunchFixture f;
  f.library.meanwhile = [&] {
    if (!f.library.aborted) f.executor->abort();
    f.drive();
  };
  f.library.refused = 1;  // as a library does after an abort
  CHECK(!f.launch().ok());
  CHECK(f.library.aborted);
  f.drive();
  CHECK(f.executor->idle());
  CHECK(f.launch().status().code() == ErrorCode::Aborted);
  f.drive();
  f.check_drained();
}

TEST_CASE("a call of one slice is all on the user's stream, one of several is not") {
  for (const size_t slices : {1, 4}) {
    CAPTURE(slices);
    LaunchFixture f;
    CHECK(f.launch(f.send.size() / slices).ok());
    for (auto* stream : f.device.polled) {
      const bool used = stream == f.user.get() || slices > 1;
      CHECK(static_cast<TaskQueue*>(stream->native())->empty() == !used);
    }
    f.executor->abort();
    f.drive();
    f.check_drained();
  }
}

TEST_CASE("calls in flight share two sets of buffers, also where the host reaches the memory") {
  constexpr size_t kBytes = size_t{64} << 10;
  LaunchFixture f;
  f.send.resize(kBytes);
  f.recv.resize(kBytes);
  f.call.send = f.send.data();
  f.call.recv = f.recv.data();
  f.call.signature.count = kBytes;
  const auto launch = [&](int times) {
    const size_t before = f.device.allocated_bytes;
    for (int i = 0; i < times; ++i) REQUIRE(f.launch(kBytes / 4).ok());
    return f.device.allocated_bytes - before;
  };
  CHECK(launch(2) > 2 * kBytes);
  CHECK(launch(20) < kBytes);  // the flags of 20 operations
  f.executor->abort();
  f.drive();
  f.check_drained();
}

TEST_CASE("a channel whose counts go back fails the communicator, with a text") {
  LaunchFixture f;
  f.channel.completed = 3;
  f.executor->connect({1, &f.channel});
  f.channel.completed = 2;
  f.executor->poll(hetccl::steady_clock().now());
  REQUIRE(f.faults.size() == 1);
  CHECK(f.faults[0].code() == ErrorCode::InternalError);
  const std::string& text = f.faults[0].message();
  CHECK_MESSAGE(text.find("a channel's counts only grow") != std::string::npos, text);
}

TEST_CASE("a completion of a message that nobody posted fails the communicator, with a text") {
  LaunchFixture f;
  f.channel.completed = 1;
  for (int times = 0; times < 2; ++times) f.executor->poll(hetccl::steady_clock().now());
  REQUIRE(f.faults.size() == 1);
  CHECK(f.faults[0].code() == ErrorCode::InternalError);
  const std::string& text = f.faults[0].message();
  CHECK_MESSAGE(text.find("lost track of its messages with rank 1") != std::string::npos, text);
  CHECK_MESSAGE(text.find("only a message that was posted completes") != std::string::npos, text);
  // Nothing moves any more, and an abort ends everything in flight.
  CHECK(f.launch().ok());
  f.drive();
  CHECK(f.channel.posted == 0);
  f.executor->abort();
  f.drive();
  f.check_drained();
}
