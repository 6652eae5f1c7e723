// The caller's half of an executor: one collective, from its plan to its streams.
#include <algorithm>

#include "exec/executor.h"
#include "plan/call.h"

namespace hetccl::exec {
namespace {

uint64_t longest_block(const Call& call) {
  if (!call.signature.uneven) return call.signature.count;
  uint64_t count = 0;
  for (const auto& counts : {call.input.counts, call.output.counts})
    for (const uint64_t one : counts) count = std::max(count, one);
  return count;
}

// Returns the bytes from the buffer's start to the end of its last block.
size_t bytes_of(const Layout& layout, uint32_t blocks, const Signature& signature) {
  uint64_t end = layout.counts.empty() ? blocks * signature.count : 0;
  for (size_t i = 0; i < layout.counts.size(); ++i)
    if (layout.counts[i] > 0) end = std::max(end, layout.offsets[i] + layout.counts[i]);
  return end * size_of(signature.type);
}

}  // namespace

Result<Program::Lowered> Executor::lower_for(Program& program, const plan::Choice& choice,
                                             const Call& call, bool registered) {
  if (!program.is_bound()) bind(program);
  const Divisor divisor{static_cast<uint32_t>(options_.n_ranks), program.plan().scales_averages};
  return program.lower_for(
      {.type = call.signature.type,
       .count = longest_block(call),
       .input = call.input,
       .output = call.output,
       .choice = choice,
       .by_host = arithmetic_by_host(*options_.device, call.signature, divisor),
       .registered = registered});
}

// Registers the user's memory. Returns whether transports have all of it.
bool Executor::hold_memory(Operation& op, const Program& program, const Call& call) {
  op.holds.clear();
  if (!registers(program)) return false;
  const auto n = static_cast<uint32_t>(options_.n_ranks);
  const Collective collective = call.signature.collective;
  const int root = call.signature.root, rank = options_.rank;
  const auto holds = [&](const void* data, const Layout& layout, uint32_t blocks, bool uses) {
    const size_t bytes = uses ? bytes_of(layout, blocks, call.signature) : 0;
    return options_.memory->hold(data, bytes, op.holds);
  };
  const bool sent = holds(call.send, call.input, plan::send_blocks(collective, n),
                          plan::sends(collective, root, rank));
  const bool received = holds(call.recv, call.output, plan::recv_blocks(collective, n),
                              plan::receives(collective, root, rank));
  return sent && received;
}

void Executor::bind(Program& program) {
  program.bind({traits_of_rank(options_.local_rank), wire_.reach_of(program.peers())});
}

Result<Ticket> Executor::launch(Program& program, const plan::Choice& choice, const Call& call,
                                device::Stream& user) {
  Operation& op = operations_.take(*options_.device);
  if (Status prepared = prepare(op, program, choice, call); !prepared.ok()) {
    operations_.give_back(op);
    return prepared;
  }
  choose_end(op);
  op.enter(collectives_, op, false);
  op.completion.left.store(1, std::memory_order_relaxed);
  const Ticket ticket(op.completion);

  // Publish before enqueueing, which may block this thread until messages have moved, or until an
  // abort. Either this thread sees the abort, or the abort sees the operation.
  collectives_.in_flight.launch(op);
  if (!op.code->one_library_call && options_.on_published) options_.on_published();
  Status status;
  if (aborted_.load(std::memory_order_seq_cst)) {
    status = error(ErrorCode::Aborted, "the communicator was aborted");
  } else if (call.begun) {
    status = collectives_.interpreter->enqueue(op, &user, {}, {lower::Part::Section::Epilogue});
  } else {
    if (!program.peers().empty()) wire_.find_windows(program.peers(), windows_);
    if (op.marks_start()) status = options_.device->write_flag(user, op.started(), 1);
    if (status.ok()) status = collectives_.interpreter->enqueue(op, user, windows_);
  }
  if (status.ok()) status = batch_->flush();
  if (status.ok()) return ticket;
  // The enqueued work continues until the abort that follows.
  collectives_.interpreter->give_up(op, &user);
  return status;
}

// Tells the library the call's number and tactic, before the library's own calls.
void Executor::configure_library(const Call& call) {
  options_.ccl->number_calls(call.sequence);
  options_.ccl->set_tactic(call.resources.tactic);
}

Status Executor::prepare(Operation& op, Program& program, const plan::Choice& choice,
                         const Call& call) {
  op.registered = hold_memory(op, program, call);
  HETCCL_ASSIGN(const Program::Lowered lowered, lower_for(program, choice, call, op.registered));
  if (!call.begun) note_launch(call, lowered.slice_elements, lowered.n_slices);
  configure_library(call);
  HETCCL_TRY(prepare(op, lowered, call));
  if (!registers(program)) return {};
  op.hold_buffers(*options_.memory);
  if (op.scratch_known || !lowered.code->registered) return {};
  // A NIC without room for hetccl's own buffers can still reach pinned memory.
  op.registered = false;
  HETCCL_ASSIGN(const Program::Lowered staged, lower_for(program, choice, call, false));
  const Rotation::Turn turn = op.turn;
  HETCCL_TRY(op.prepare(staged, call));
  return collectives_.enlarge_buffers(op, turn);
}

Status Executor::prepare(Operation& op, const Program::Lowered& lowered, const Call& call) {
  HETCCL_TRY(op.prepare(lowered, call));
  // Take the turn last: it only comes back when its operation retires.
  return collectives_.give_buffers(op, collectives_.in_flight.next());
}

// Chooses how the engine learns of its end.
void Executor::choose_end(Operation& op) {
  if (op.code->one_library_call && marks_ != nullptr && !op.call.awaited && !op.call.timed &&
      options_.tracer == nullptr) {
    op.marks = marks_.get();
    op.mark = marks_->next();
    return;
  }
  unmarked_.fetch_add(1);
  if (marks_ != nullptr) marks_->settle();  // they end in order
}

void Executor::note_launch(const Call& call, uint64_t slice_elements, uint32_t slices) {
  if (options_.recorder == nullptr) return;
  Record record;
  record.sequence = call.sequence;
  record.signature = call.signature;
  record.slice_elements = slice_elements;
  record.slices = slices;
  record.launched = call.launched;
  options_.recorder->launch(record);
}

Result<bool> Executor::all_reduce_at_once(const Program& program, const Call& call,
                                          device::Stream& user) {
  const Signature& signature = call.signature;
  const plan::Step& step = program.plan().steps[0];
  const Reducer how{operator_of(signature.op, step.average, step.scale), call.factor};
  // Record it first: if ranks make different calls, each rank is asked for its own.
  note_launch(call, signature.count, 1);
  configure_library(call);
  HETCCL_ASSIGN(const bool done,
                options_.ccl->all_reduce_at_once(call.send, call.recv, signature.count,
                                                 signature.type, how, user.native()));
  if (!done || options_.recorder == nullptr) return done;
  const bool failed = !options_.ccl->async_error().ok();
  options_.recorder->end(call.sequence, failed ? Record::State::Failed : Record::State::Completed,
                         call.launched);
  return done;
}

Status Executor::capture(Program& program, const Call& call, device::Stream& user) {
  HETCCL_ASSIGN(const Program::Lowered lowered, lower_for(program, {}, call, false));
  Operation& op = operations_.take(*options_.device);
  configure_library(call);
  Status status = op.prepare(lowered, call);
  if (status.ok()) status = op.use_own_buffers();
  if (status.ok()) status = collectives_.interpreter->record(op, user);
  if (status.ok()) status = batch_->flush();
  batch_->drop();  // in case of an error
  operations_.give_back(op);
  return status;
}

}  // namespace hetccl::exec
