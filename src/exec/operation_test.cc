#include "exec/operation.h"

#include <doctest/doctest.h>

#include "exec/testing.h"

namespace {

using hetccl::Collective;
using hetccl::DataType;
using hetccl::ErrorCode;
using hetccl::RedOp;
using hetccl::device::kFlagAborted;
using hetccl::exec::Arena;
using hetccl::exec::Call;
using hetccl::exec::Operation;
using hetccl::exec::Program;
using hetccl::exec::Span;
using hetccl::exec::testing::QueueDevice;
using hetccl::lower::Geometry;
using hetccl::lower::Instruction;
using hetccl::lower::Memory;
using hetccl::lower::Opcode;
using hetccl::lower::Operand;
using hetccl::lower::Sync;
using hetccl::plan::Buffer;
using hetccl::plan::Region;
using hetccl::plan::Step;
using hetccl::plan::StepKind;

// One message to rank 1, staged, and one copy, over two blocks of scratch.
hetccl::plan::RankPlan staged_plan() {
  hetccl::plan::RankPlan plan;
  plan.scratch_blocks = 2;
  plan.stages = 2;
  Step send;
  send.kind = StepKind::Send;
  send.peer = 1;
  send.srcs = {{Buffer::Scratch, 0}};
  Step copy;
  copy.kind = StepKind::Copy;
  copy.srcs = {{Buffer::Input, 0}};
  copy.dst = {Buffer::Scratch, 1};
  plan.steps = {send, copy};
  return plan;
}

Operand operand(Memory memory, const Region& region) {
  return {memory, region};
}
Operand input(uint32_t block) {
  return operand(Memory::Input, {Buffer::Input, block});
}
Operand output(uint32_t block) {
  return operand(Memory::Output, {Buffer::Output, block});
}
Operand in_scratch(uint32_t block) {
  return operand(Memory::Scratch, {Buffer::Scratch, block});
}
// The message's operand, in staging memory.
Operand staged_message() {
  return operand(Memory::Staging, {Buffer::Scratch, 0});
}

// Uses bytes, so that the grain is 64 elements.
struct OperationFixture {
  OperationFixture(uint64_t count, uint64_t slice, uint32_t slices, uint32_t slots = 2) {
    call.signature = {Collective::AllReduce, DataType::Int8, RedOp::Sum, 0, count};
    call.send = send;
    call.recv = recv;
    REQUIRE(op.prepare(lowered(slice, slices, slots), call).ok());
    REQUIRE(op.use_own_buffers().ok());
  }
  // Lowers the plan for calls sliced like this.
  Program::Lowered lowered(uint64_t slice, uint32_t slices, uint32_t slots = 2) {
    const hetccl::plan::RankPlan plan = staged_plan();
    hetccl::lower::Target target;
    target.lanes = {{.peer = 1, .direct = false}};
    Geometry geometry;
    geometry.slice_elements = slice;
    geometry.n_slices = slices;
    geometry.n_slots = slots;
    geometry.depth = slots - 1;
    geometry.lanes.resize(1);
    codes.push_back(std::make_unique<hetccl::lower::Code>(
        hetccl::lower::lower(plan, target, geometry).value()));
    return {geometry.slice_elements, geometry.n_slices, codes.back().get()};
  }
  const Instruction& instruction(Opcode op_code) const {
    for (const Instruction& one : op.code->list) {
      if (one.op == op_code) return one;
    }
    FAIL("no such instruction");
    return op.code->list[0];
  }
  std::byte send[1], recv[1];  // only their addresses matter
  QueueDevice device;
  std::vector<std::unique_ptr<hetccl::lower::Code>> codes;
  Call call;
  Operation op{device};
};

Operand part(Memory memory, uint32_t block, uint32_t num_begin, uint32_t num_end, uint32_t den) {
  const auto buffer = static_cast<Buffer>(memory);  // the enumerators agree so far
  return operand(memory, {buffer, block, {num_begin, den}, {num_end, den}});
}

}  // namespace

TEST_CASE("whole slices follow each other, and the last one ends with the message") {
  OperationFixture f(300, 128, 3);
  const uint64_t lengths[] = {128, 128, 44};
  for (uint32_t k = 0; k < 3; ++k) {
    const Span in = f.op.resolve(input(0), k);
    CHECK(in.data - f.send == 128 * static_cast<ptrdiff_t>(k));
    CHECK(in.count == lengths[k]);
    const Span out = f.op.resolve(output(2), k);
    CHECK(out.data - f.recv == 2 * 300 + 128 * static_cast<ptrdiff_t>(k));
    CHECK(out.count == lengths[k]);
  }
  // Past the message's end there is nothing.
  CHECK(f.op.resolve(input(0), 3).count == 0);
}

TEST_CASE("fractions cut a slice without gaps, in full and at its end") {
  for (const uint64_t count : {1, 63, 64, 65, 129, 191, 192, 500}) {
    CAPTURE(count);
    OperationFixture f(count, 192, static_cast<uint32_t>((count + 191) / 192));
    uint64_t next = 0;
    for (uint32_t k = 0; k < f.op.n_slices; ++k) {
      for (uint32_t i = 0; i < 3; ++i) {
        const Span span = f.op.resolve(part(Memory::Input, 0, i, i + 1, 3), k);
        CHECK(span.data - f.send == static_cast<ptrdiff_t>(next));
        next += span.count;
      }
    }
    CHECK(next == count);
  }
}

TEST_CASE("elements wider than a byte count in elements and lie at bytes") {
  OperationFixture f(300, 128, 3);
  f.call.signature.type = DataType::Float64;
  REQUIRE(f.op.prepare(f.lowered(128, 3), f.call).ok());
  const Span span = f.op.resolve(part(Memory::Output, 1, 1, 2, 2), 1);
  CHECK(span.count == 64);
  CHECK(span.data - f.recv == 8 * (300 + 128 + 64));
}

TEST_CASE("a call of no elements resolves to nothing, even without buffers") {
  OperationFixture f(0, 64, 1);
  for (const auto memory : {Memory::Input, Memory::Output, Memory::Scratch, Memory::Identity}) {
    CHECK(f.op.resolve(part(memory, 0, 0, 1, 1), 0).count == 0);
    CHECK(f.op.resolve(part(memory, 0, 1, 2, 2), 0).count == 0);
  }
  f.call.send = f.call.recv = nullptr;
  REQUIRE(f.op.prepare(f.lowered(64, 1, 1), f.call).ok());
  CHECK(f.op.resolve(input(0), 0).data == nullptr);
  CHECK(f.op.resolve(output(0), 0).count == 0);
}

TEST_CASE("scratch and staging of slices in flight are apart; a slot comes back after n_slots") {
  OperationFixture f(1000, 128, 8);
  std::vector<std::byte*> scratch, staging;
  for (uint32_t k = 0; k < 2; ++k) {
    for (uint32_t block = 0; block < 2; ++block) {
      scratch.push_back(f.op.resolve(in_scratch(block), k).data);
    }
    staging.push_back(f.op.resolve(staged_message(), k).data);  // the message's place
  }
  for (const auto& places : {scratch, staging}) {
    for (size_t a = 0; a < places.size(); ++a) {
      for (size_t b = 0; b < a; ++b) CHECK(std::abs(places[a] - places[b]) >= 128);
    }
  }
  CHECK(f.op.resolve(in_scratch(1), 2).data == scratch[1]);
  CHECK(f.op.resolve(staged_message(), 3).data == staging[1]);
  // The operation owns all of it: sanitizers check.
  for (auto* place : scratch) std::memset(place, 1, 128);
  for (auto* place : staging) std::memset(place, 1, 128);
}

TEST_CASE("the blocks of a run lie one behind the other, in a short slice too") {
  hetccl::plan::RankPlan plan;
  plan.scratch_blocks = 4;  // a single one, and a run of three
  const Region run{.buffer = Buffer::Scratch, .block = 1, .blocks = 3};
  const auto send = [](const Region& region) {
    return Step{.kind = StepKind::Send, .srcs = {region}, .peer = 1};
  };
  plan.steps = {send(run), send({Buffer::Scratch, 0})};
  hetccl::lower::Target target;
  target.lanes = {{.peer = 1, .direct = false}};
  Geometry geometry;
  geometry.slice_elements = 128;
  geometry.n_slices = 3;
  geometry.n_slots = 2;
  geometry.lanes.resize(1);
  const hetccl::lower::Code code = hetccl::lower::lower(plan, target, geometry).value();
  CHECK(code.staged_blocks == 4);

  OperationFixture f(300, 128, 3);
  REQUIRE(f.op.prepare({128, 3, &code}, f.call).ok());
  REQUIRE(f.op.use_own_buffers().ok());
  CHECK(f.op.staging_bytes() == 2 * 4 * 128);
  for (const uint32_t k : {0, 1, 2}) {
    CAPTURE(k);
    const auto length = static_cast<ptrdiff_t>(k == 2 ? 44 : 128);
    const Span all = f.op.resolve(operand(Memory::Scratch, run), k);
    CHECK(all.count == 3 * static_cast<uint64_t>(length));
    CHECK(all.data - f.op.resolve(in_scratch(0), k).data == 128);
    for (const uint32_t i : {0, 1, 2}) {
      const Region block{.buffer = Buffer::Scratch, .block = 1 + i, .run = i};
      const Span one = f.op.resolve(operand(Memory::Scratch, block), k);
      CHECK(one.count == static_cast<uint64_t>(length));
      CHECK(one.data - all.data == i * length);
    }
    const Operand first{Memory::Staging, run, 0}, second{Memory::Staging, {Buffer::Scratch, 0}, 1};
    CHECK(f.op.resolve(second, k).data - f.op.resolve(first, k).data == 3 * 128);
    std::memset(f.op.resolve(first, k).data, 1, 3 * 128);
    std::memset(f.op.resolve(second, k).data, 1, 128);
  }
}

TEST_CASE("a message's place in the ring is kept for each slot") {
  OperationFixture f(1000, 128, 8);
  std::byte memory[2];
  f.op.ring_place(0, 4) = &memory[0];
  f.op.ring_place(0, 5) = &memory[1];
  const Operand message = operand(Memory::Ring, {Buffer::Scratch, 0});
  CHECK(f.op.resolve(message, 4).data == &memory[0]);
  CHECK(f.op.resolve(message, 5).data == &memory[1]);
  CHECK(f.op.resolve(message, 7).count == 104);
  f.op.ring_place(0, 6) = &memory[1];  // two slots
  CHECK(f.op.resolve(message, 4).data == &memory[1]);
}

TEST_CASE("blocks of an uneven call lie where it says, and are as long") {
  OperationFixture f(0, 64, 3);
  const uint64_t counts[] = {70, 0, 150}, offsets[] = {1000, 0, 5};
  f.call.signature.uneven = true;
  f.call.output = {counts, offsets};
  REQUIRE(f.op.prepare(f.lowered(64, 3), f.call).ok());
  CHECK(f.op.resolve(output(0), 0).data - f.recv == 1000);
  CHECK(f.op.resolve(output(0), 1).data - f.recv == 1064);
  CHECK(f.op.resolve(output(0), 1).count == 6);
  CHECK(f.op.resolve(output(0), 2).count == 0);
  CHECK(f.op.resolve(output(1), 0).count == 0);
  CHECK(f.op.resolve(output(2), 2).data - f.recv == 5 + 128);
  CHECK(f.op.bytes_of(output(2).region, 2) == 22);
  CHECK(f.op.call.output.counts.empty());  // the caller's memory
}

TEST_CASE("preparing again takes no memory, and forgets flags and messages") {
  OperationFixture f(1000, 128, 8);
  const auto n_syncs = static_cast<uint16_t>(f.op.code->syncs.size());
  REQUIRE(n_syncs > 2);
  CHECK(f.op.outstanding == 8);
  f.op.outstanding = 3;
  f.op.flag(2).word.store(5);
  f.op.release_waits();
  CHECK(f.op.started().word.load() == kFlagAborted);
  CHECK(!f.op.finished().reached(1));
  for (uint16_t sync = 0; sync < n_syncs; ++sync) {
    CHECK(f.op.flag(sync).reached(64) == (sync != hetccl::lower::kFinished));
  }
  const size_t blocks = f.device.blocks;
  auto* const memory = f.op.resolve(in_scratch(0), 0).data;
  REQUIRE(f.op.prepare(f.lowered(128, 8), f.call).ok());
  REQUIRE(f.op.use_own_buffers().ok());
  CHECK(f.device.blocks == blocks);
  CHECK(f.op.resolve(in_scratch(0), 0).data == memory);
  CHECK(f.op.outstanding == 8);
  for (uint16_t sync = 0; sync < n_syncs; ++sync) CHECK(f.op.flag(sync).word.load() == 0);
  CHECK(!f.op.ended());
}

TEST_CASE("syncs count slices, or are signalled once") {
  OperationFixture f(1000, 128, 8);
  const Instruction& send = f.instruction(Opcode::Send);
  REQUIRE(send.done != hetccl::lower::kNoSync);
  CHECK(f.op.counted(send.done, 0) == 1);
  CHECK(f.op.counted(send.done, 6) == 7);
  Instruction wait;
  wait.op = Opcode::Wait;
  wait.sync = send.done;
  wait.back = 2;
  CHECK(f.op.awaited(wait, 1) == 0);  // there is no such slice
  CHECK(f.op.awaited(wait, 2) == 1);
  CHECK(f.op.is_over(wait, 1));
  CHECK(!f.op.is_over(wait, 2));
  f.op.flag(send.done).word.store(1);
  CHECK(f.op.is_over(wait, 2));
  CHECK(!f.op.is_over(wait, 3));
  wait.sync = hetccl::lower::kStarted;
  CHECK(f.op.awaited(wait, 6) == 1);
  CHECK(f.op.counted(wait.sync, 6) == 1);
  CHECK(!f.op.is_over(wait, 6));
  f.op.started().word.store(1);
  CHECK(f.op.is_over(wait, 6));
}

TEST_CASE("an operation ends once its stream has, and all messages are complete") {
  OperationFixture f(1000, 128, 8);
  f.op.finished().word.store(1);
  CHECK(f.op.is_finished());
  CHECK(!f.op.ended());
  f.op.outstanding = 0;
  CHECK(f.op.ended());
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
    CHECK(arena.reserve(1001).code() == ErrorCode::SystemError);
    CHECK(arena.data() == second);
    std::memset(arena.data(), 1, 200);
  }
  CHECK(device.blocks == 0);
}

TEST_CASE("an operation without memory is an error, and the next one may succeed") {
  OperationFixture f(1000, 128, 8);
  f.device.largest_block = 4096;
  f.call.signature.count = 1 << 20;
  CHECK(f.op.prepare(f.lowered(1 << 17, 8), f.call).ok());
  CHECK(f.op.use_own_buffers().code() == ErrorCode::SystemError);
  f.call.signature.count = 1000;
  CHECK(f.op.prepare(f.lowered(128, 8), f.call).ok());
  CHECK(f.op.use_own_buffers().ok());
}
