// The caller's side of messages between two ranks: enqueues all device work of a call at once.
#include <algorithm>
#include <new>

#include "exec/point_to_point.h"

namespace hetccl::exec {
namespace {

// Both ends cut a message alike, whether or not they copy through staging memory.
constexpr size_t kPieceBytes = size_t{4} << 20U;
constexpr size_t kMaxPieces = 64;
// Staging memory of a message, in pieces.
constexpr uint32_t kSlots = 4;
constexpr size_t kAlignment = 64;

size_t ceil_div(size_t a, size_t b) {
  return (a + b - 1) / b;
}

}  // namespace

PointToPoint::PointToPoint(PointToPointOptions options) : options_(std::move(options)) {
  staged_ = (options_.device->capabilities() & device::kHostAccessible) == 0;
}

PointToPoint::~PointToPoint() = default;

Result<std::unique_ptr<PointToPoint>> PointToPoint::create(PointToPointOptions options) {
  std::unique_ptr<PointToPoint> made(new PointToPoint(std::move(options)));
  HETCCL_ASSIGN(made->local_stream_, made->options_.device->create_stream());
  HETCCL_ASSIGN(made->forked_, made->options_.device->create_event());
  HETCCL_ASSIGN(made->joined_, made->options_.device->create_event());
  return made;
}

Result<PointToPoint::Ticket> PointToPoint::launch(std::span<const Message> messages, TimePoint now,
                                                  TimePoint deadline, device::Stream* user) {
  Batch& batch = take();
  batch.launched = now;
  batch.deadline = deadline;
  batch.streamed = user != nullptr;
  const Ticket ticket(&batch, batch.use.load(std::memory_order_relaxed));
  Status status = prepare(batch, messages);
  if (!status.ok()) {
    std::lock_guard lock(mutex_);
    free_.push_back(&batch);
    return status;
  }
  // First, since enqueueing may block this thread until messages have moved, or until an abort.
  in_flight_.fetch_add(1);
  {
    std::lock_guard lock(mutex_);
    launched_.push_back(&batch);
  }
  if (options_.on_published) options_.on_published();
  status = aborted_ ? error(Code::Aborted, "the communicator was aborted")
                    : enqueue(batch, messages, user);
  if (!status.ok()) {
    give_up(batch, user);
    return status;
  }
  return ticket;
}

PointToPoint::Batch& PointToPoint::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    batches_.push_back(std::make_unique<Batch>(*options_.device));
    return *batches_.back();
  }
  Batch* batch = free_.back();
  free_.pop_back();
  return *batch;
}

Status PointToPoint::prepare(Batch& batch, std::span<const Message> messages) {
  batch.transits.clear();
  batch.local = false;
  batch.given_up.store(false, std::memory_order_relaxed);
  size_t staging = 0;
  for (const Message& message : messages) {
    if (message.peer == options_.rank) {
      batch.local = true;
      continue;
    }
    batch.transits.push_back(cut(message));
    staging += batch.transits.back().slots * batch.transits.back().piece_bytes;
  }
  batch.unfinished = static_cast<uint32_t>(batch.transits.size());
  const size_t n_flags = Batch::kFlags + (staged_ ? 3 * batch.transits.size() : 0);
  HETCCL_TRY(batch.flag_memory.reserve(n_flags * sizeof(device::Flag)));
  if (staged_) HETCCL_TRY(batch.staging.reserve(staging));
  for (size_t i = 0; i < n_flags; ++i) new (&batch.flag(i)) device::Flag();
  if (batch.transits.empty()) batch.exchanged().word.store(1, std::memory_order_release);
  place_transits(batch);
  return {};
}

// Both ends cut a message alike.
PointToPoint::Transit PointToPoint::cut(const Message& message) {
  Transit transit;
  transit.message = message;
  const size_t bytes = transit.bytes();
  transit.pieces =
      static_cast<uint32_t>(std::clamp<size_t>(ceil_div(bytes, kPieceBytes), 1, kMaxPieces));
  transit.piece_bytes =
      std::max(ceil_div(ceil_div(bytes, transit.pieces), kAlignment), size_t{1}) * kAlignment;
  transit.slots = std::min(transit.pieces, kSlots);
  return transit;
}

// Numbers the messages of each lane, and gives each its part of the staging memory and its flags.
void PointToPoint::place_transits(Batch& batch) {
  std::byte* memory = batch.staging.data();
  for (size_t i = 0; i < batch.transits.size(); ++i) {
    Transit& transit = batch.transits[i];
    if (transit.message.peer != kAnyRank) {
      transit.number = lane_of(transit.message).launched++;
    }
    if (!staged_) continue;
    transit.staging = memory;
    memory += transit.slots * transit.piece_bytes;
    const size_t first = Batch::kFlags + 3 * i;
    transit.staged = &batch.flag(first);
    transit.done = &batch.flag(first + 1);
    transit.drained = &batch.flag(first + 2);
  }
}

Status PointToPoint::enqueue(Batch& batch, std::span<const Message> messages,
                             device::Stream* user) {
  auto& device = *options_.device;
  if (user != nullptr) {
    HETCCL_TRY(device.write_flag(*user, batch.started(), 1));
  } else {
    batch.started().word.store(1, std::memory_order_release);
  }
  if (staged_) {
    if (user != nullptr) HETCCL_TRY(device.record(*forked_, *user));
    // What is sent first: it waits for no other rank, so it completes on a single hardware queue.
    for (const bool send : {true, false}) {
      for (Transit& transit : batch.transits) {
        if (transit.message.send == send) HETCCL_TRY(enqueue_copies(transit, user));
      }
    }
  }
  device::Stream& local = user != nullptr ? *user : *local_stream_;
  if (batch.local) HETCCL_TRY(copy_local(messages, local));
  if (user == nullptr) {
    return batch.local ? device.write_flag(local, batch.copied(), 1) : Status();
  }
  HETCCL_TRY(join(batch, *user));
  // What staging memory holds of a message may still be sent behind it.
  if (!staged_) HETCCL_TRY(device.wait_flag(*user, batch.exchanged(), 1));
  return device.write_flag(*user, batch.passed(), 1);
}

Status PointToPoint::enqueue_copies(Transit& transit, device::Stream* user) {
  auto& device = *options_.device;
  auto& stream = *lane_of(transit.message).stream;
  if (user != nullptr) HETCCL_TRY(device.wait(stream, *forked_));
  for (uint32_t piece = 0; piece < transit.pieces; ++piece) {
    std::byte* user_memory = transit.user_memory(piece);
    std::byte* wire_memory = transit.wire_memory(piece);
    const size_t bytes = transit.bytes_of(piece);
    if (transit.message.send) {
      if (piece >= transit.slots) {
        HETCCL_TRY(device.wait_flag(stream, *transit.done, piece - transit.slots + 1));
      }
      if (bytes > 0) HETCCL_TRY(device.copy(stream, wire_memory, user_memory, bytes));
      HETCCL_TRY(device.write_flag(stream, *transit.staged, piece + 1));
    } else {
      HETCCL_TRY(device.wait_flag(stream, *transit.staged, piece + 1));
      if (bytes > 0) HETCCL_TRY(device.copy(stream, user_memory, wire_memory, bytes));
      HETCCL_TRY(device.write_flag(stream, *transit.done, piece + 1));
    }
  }
  return device.write_flag(stream, *transit.drained, 1);
}

// The n-th message that this rank sends itself is the n-th that it receives from itself.
Status PointToPoint::copy_local(std::span<const Message> messages, device::Stream& stream) {
  size_t next = 0;
  for (const Message& sent : messages) {
    if (!sent.send || sent.peer != options_.rank) continue;
    while (messages[next].send || messages[next].peer != options_.rank) ++next;
    const Message& received = messages[next++];
    const size_t bytes = sent.count * size_of(sent.type);
    if (bytes > 0) HETCCL_TRY(options_.device->copy(stream, received.data, sent.data, bytes));
  }
  return {};
}

Status PointToPoint::join(Batch& batch, device::Stream& user) {
  if (!staged_) return {};
  for (Transit& transit : batch.transits) {
    HETCCL_TRY(options_.device->record(*joined_, *lane_of(transit.message).stream));
    HETCCL_TRY(options_.device->wait(user, *joined_));
  }
  return {};
}

// The work enqueued so far goes on until the abort that follows.
void PointToPoint::give_up(Batch& batch, device::Stream* user) {
  batch.given_up.store(true, std::memory_order_release);
  auto& last = user != nullptr ? *user : *local_stream_;
  const bool drains =
      join(batch, last).ok() && options_.device->write_flag(last, batch.passed(), 1).ok();
  if (!drains) batch.passed().word.store(1, std::memory_order_release);
}

void PointToPoint::Batch::release_waits() {
  const auto release = [](device::Flag& flag) {
    flag.word.store(device::kFlagAborted, std::memory_order_release);
  };
  release(started());
  release(exchanged());
  for (Transit& transit : transits) {
    if (transit.staging == nullptr) continue;
    release(*transit.staged);
    release(*transit.done);
  }
}

}  // namespace hetccl::exec
