#include "exec/operation.h"

#include <doctest/doctest.h>

#include <random>

#include "exec/testing.h"

namespace {

using hetccl::Code;
using hetccl::Collective;
using hetccl::DataType;
using hetccl::RedOp;
using hetccl::device::kFlagAborted;
using hetccl::exec::Arena;
using hetccl::exec::Call;
using hetccl::exec::Operation;
using hetccl::exec::Program;
using hetccl::exec::Span;
using hetccl::exec::Window;
using hetccl::exec::WindowRing;
using hetccl::exec::testing::QueueDevice;
using hetccl::plan::Buffer;
using hetccl::plan::Region;
using hetccl::plan::Step;
using hetccl::plan::StepKind;

// One message to rank 1 and one copy, over two blocks of scratch.
Program program() {
  hetccl::plan::RankPlan plan;
  plan.scratch_blocks = 2;
  Step send;
  send.kind = StepKind::Send;
  send.peer = 1;
  send.srcs = {{Buffer::Scratch, 0}};
  Step copy;
  copy.kind = StepKind::Copy;
  copy.srcs = {{Buffer::Input, 0}};
  copy.dst = {Buffer::Scratch, 1};
  plan.steps = {send, copy};
  return std::move(Program::compile(std::move(plan))).value();
}

// Bytes, so that the grain is 64 elements.
struct Fixture {
  explicit Fixture(uint64_t count, uint64_t slice, uint32_t slices, uint32_t slots = 2) {
    call.signature = {Collective::AllReduce, DataType::Int8, RedOp::Sum, 0, count};
    call.send = input;
    call.recv = output;
    REQUIRE(op.prepare(prog, call, slice, slices, slots, true).ok());
    REQUIRE(op.use_own_buffers().ok());
  }
  std::byte input[1], output[1];  // addresses alone matter
  QueueDevice device;
  Program prog = program();
  Call call;
  Operation op{device};
};

Region part(Buffer buffer, uint32_t block, uint32_t num_begin, uint32_t num_end, uint32_t den) {
  return {buffer, block, {num_begin, den}, {num_end, den}};
}

}  // namespace

TEST_CASE("whole slices follow each other, and the last one ends with the message") {
  Fixture f(300, 128, 3);
  const uint64_t lengths[] = {128, 128, 44};
  for (uint32_t k = 0; k < 3; ++k) {
    const Span in = f.op.resolve({Buffer::Input, 0}, k);
    CHECK(in.data - f.input == 128 * static_cast<ptrdiff_t>(k));
    CHECK(in.count == lengths[k]);
    const Span out = f.op.resolve({Buffer::Output, 2}, k);
    CHECK(out.data - f.output == 2 * 300 + 128 * static_cast<ptrdiff_t>(k));
    CHECK(out.count == lengths[k]);
  }
  // Beyond the message there is nothing.
  CHECK(f.op.resolve({Buffer::Input, 0}, 3).count == 0);
}

TEST_CASE("fractions cut a slice without gaps, in full and at its end") {
  for (const uint64_t count : {1, 63, 64, 65, 129, 191, 192, 500}) {
    CAPTURE(count);
    Fixture f(count, 192, static_cast<uint32_t>((count + 191) / 192));
    uint64_t next = 0;
    for (uint32_t k = 0; k < f.op.n_slices; ++k) {
      for (uint32_t i = 0; i < 3; ++i) {
        const Span span = f.op.resolve(part(Buffer::Input, 0, i, i + 1, 3), k);
        CHECK(span.data - f.input == static_cast<ptrdiff_t>(next));
        next += span.count;
      }
    }
    CHECK(next == count);
  }
}

// A piece of a shorter slice may be longer: of 1023 floats the second half is 527, of 1024 it is
// 512.
TEST_CASE("what goes through a window fits, and is read in time, in every slice") {
  QueueDevice device;
  std::mt19937_64 random(7);
  size_t kept = 0, longer = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto den = static_cast<uint32_t>(1 + random() % 6);
    const auto begin = static_cast<uint32_t>(random() % den);
    const auto end = static_cast<uint32_t>(begin + 1 + random() % (den - begin));
    hetccl::plan::RankPlan plan;
    plan.scratch_blocks = 1;
    Step recv;
    recv.kind = StepKind::Recv;
    recv.peer = 1;
    recv.dst = part(Buffer::Scratch, 0, begin, end, den);
    plan.steps = {recv};
    const Program message = std::move(Program::compile(std::move(plan))).value();
    const uint64_t slice = 16 * (1 + random() % 100);
    const uint64_t last = random() % slice, count = slice * (1 + random() % 4) + last;
    std::vector<std::byte> memory(4096 + 2 * WindowRing::kGrain * (2 + random() % 40));
    const auto window = std::move(Window::open(device, memory, true)).value();
    Call call;
    call.signature = {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, count};
    Operation op(device);
    Window* const windows[] = {window.get()};
    const auto slices = static_cast<uint32_t>((count + slice - 1) / slice);
    REQUIRE(op.prepare(message, call, slice, slices, 2, false, windows).ok());
    if (op.window_of(0) == nullptr) continue;
    const size_t ring = (memory.size() - 4096) / 2, unread = op.slices_unread(0);
    kept += unread > 0 ? 1 : 0;
    for (uint32_t k = 0; k < slices; ++k) {
      const size_t bytes = op.payload({k, 0}).bytes;
      longer += bytes > op.payload({0, 0}).bytes ? 1 : 0;
      CHECK((2 + unread) * WindowRing::room(bytes) <= ring);
    }
  }
  CHECK(kept > 100);
  CHECK(longer > 0);
}

TEST_CASE("elements wider than a byte count in elements and lie at bytes") {
  Fixture f(300, 128, 3);
  f.call.signature.type = DataType::Float64;
  REQUIRE(f.op.prepare(f.prog, f.call, 128, 3, 2, false).ok());
  const Span span = f.op.resolve(part(Buffer::Output, 1, 1, 2, 2), 1);
  CHECK(span.count == 64);
  CHECK(span.data - f.output == 8 * (300 + 128 + 64));
}

TEST_CASE("a call of no elements resolves to nothing, even without buffers") {
  Fixture f(0, 64, 1);
  for (const auto buffer : {Buffer::Input, Buffer::Output, Buffer::Scratch}) {
    CHECK(f.op.resolve({buffer, 0}, 0).count == 0);
    CHECK(f.op.resolve(part(buffer, 0, 1, 2, 2), 0).count == 0);
  }
  f.call.send = f.call.recv = nullptr;
  REQUIRE(f.op.prepare(f.prog, f.call, 64, 1, 1, true).ok());
  CHECK(f.op.resolve({Buffer::Input, 0}, 0).data == nullptr);
  CHECK(f.op.resolve({Buffer::Output, 0}, 0).count == 0);
}

TEST_CASE("scratch and staging of slices in flight are apart; a slot comes back after n_slots") {
  Fixture f(1000, 128, 8);
  std::vector<std::byte*> scratch, staging;
  for (uint32_t k = 0; k < 2; ++k) {
    for (uint32_t block = 0; block < 2; ++block) {
      scratch.push_back(f.op.resolve({Buffer::Scratch, block}, k).data);
    }
    staging.push_back(f.op.staging_of(0, k));  // the message's
  }
  for (const auto& places : {scratch, staging}) {
    for (size_t a = 0; a < places.size(); ++a) {
      for (size_t b = 0; b < a; ++b) CHECK(std::abs(places[a] - places[b]) >= 128);
    }
  }
  CHECK(f.op.resolve({Buffer::Scratch, 1}, 2).data == scratch[1]);
  CHECK(f.op.staging_of(0, 3) == staging[1]);
  // All of it is memory that the operation owns: sanitizers watch.
  for (auto* place : scratch) std::memset(place, 1, 128);
  for (auto* place : staging) std::memset(place, 1, 128);
}

TEST_CASE("preparing again takes no memory, and forgets flags and messages") {
  Fixture f(1000, 128, 8);
  f.op.done_of(0).word.store(5);
  f.op.list_messages(3);
  CHECK(f.op.sends[0].size() == 8);
  f.op.release_waits();
  CHECK(f.op.started().word.load() == kFlagAborted);
  CHECK(f.op.staged_of(1).reached(64));
  CHECK(!f.op.finished().reached(1));
  const size_t blocks = f.device.blocks;
  auto* const memory = f.op.resolve({Buffer::Scratch, 0}, 0).data;
  REQUIRE(f.op.prepare(f.prog, f.call, 128, 8, 2, true).ok());
  REQUIRE(f.op.use_own_buffers().ok());
  f.op.list_messages(3);
  CHECK(f.device.blocks == blocks);
  CHECK(f.op.resolve({Buffer::Scratch, 0}, 0).data == memory);
  CHECK(f.op.sends[0].size() == 8);
  for (uint16_t step = 0; step < 2; ++step) {
    CHECK(f.op.done_of(step).word.load() == 0);
    CHECK(f.op.staged_of(step).word.load() == 0);
  }
  CHECK(f.op.started().word.load() == 0);
}

TEST_CASE("an arena grows at least twofold, keeps what it has when refused, and frees it") {
  QueueDevice device;
  {
    Arena arena(device, Arena::Kind::Device);
    CHECK(arena.reserve(0).ok());
    CHECK(arena.data() == nullptr);
    REQUIRE(arena.reserve(100).ok());
    auto* const first = arena.data();
    REQUIRE(arena.reserve(100).ok());
    CHECK(arena.data() == first);
    REQUIRE(arena.reserve(101).ok());
    auto* const second = arena.data();
    REQUIRE(arena.reserve(200).ok());
    CHECK(arena.data() == second);
    CHECK(device.blocks == 1);

    device.largest_block = 1000;
    CHECK(arena.reserve(1001).code() == Code::SystemError);
    CHECK(arena.data() == second);
    std::memset(arena.data(), 1, 200);
  }
  CHECK(device.blocks == 0);
}

TEST_CASE("an operation without memory is an error, and the next one may succeed") {
  Fixture f(1000, 128, 8);
  f.device.largest_block = 4096;
  f.call.signature.count = 1 << 20;
  CHECK(f.op.prepare(f.prog, f.call, 1 << 17, 8, 2, true).ok());
  CHECK(f.op.use_own_buffers().code() == Code::SystemError);
  f.call.signature.count = 1000;
  CHECK(f.op.prepare(f.prog, f.call, 128, 8, 2, true).ok());
  CHECK(f.op.use_own_buffers().ok());
}
