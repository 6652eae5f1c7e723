#include "ccl/host/member.h"

#include <algorithm>
#include <utility>

#include "base/cpu_pause.h"

namespace hetccl::ccl::host {

namespace {

// Results of at least this size bypass the caches; for smaller ones the next reader would lose more
// than is gained.
constexpr size_t kMuch = size_t{4} << 20;
// How often a poll checks for the other ranks before it yields: about half a microsecond, in which
// ranks that call at the same time meet.
constexpr int kLooks = 30;

template <typename T>
T* at(const TaskQueue& queue, T* memory, size_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return queue.host_address(static_cast<Byte*>(memory) + bytes);
}

}  // namespace

Caching caching_of(const HostCall& operation) {
  return operation.result_bytes() >= kMuch ? Caching::Bypass : Caching::Keep;
}

Member::Member(Segment segment, int rank, Waker* waker, std::vector<RemoteWaker> peers)
    : segment_(std::move(segment)),
      rank_(rank),
      waker_(waker),
      peers_(std::move(peers)),
      sources_(static_cast<size_t>(segment_.n_ranks())),
      offsets_(static_cast<size_t>(segment_.n_ranks())),
      factors_(static_cast<size_t>(segment_.n_ranks())) {}

bool Member::wakeable() const {
  return waker_ && segment_.control(rank_).unwakeable.load(std::memory_order_acquire) == 0;
}

HostCall& Member::open(Kind kind, std::span<const Shard> shards, DataType type,
                       const Reducer& how) {
  HostCall& operation = take_idle();
  operation.prepare(kind, shards, type, how, {opened_++, number_}, segment_.geometry(), scratch_);
  return operation;
}

HostCall& Member::take_idle() {
  std::lock_guard lock(idle_mutex_);
  if (idle_.empty()) {
    operations_.push_back(std::make_unique<HostCall>());
    idle_.reserve(operations_.size());
    return *operations_.back();
  }
  HostCall* operation = idle_.back();
  idle_.pop_back();
  return *operation;
}

void Member::close(HostCall& operation) {
  std::lock_guard lock(idle_mutex_);
  idle_.push_back(&operation);
}

TaskState Member::poll(HostCall& operation, const TaskQueue& queue) {
  if (!failed()) {
    if (turn_.load(std::memory_order_acquire) != operation.call.sequence) return TaskState::Pending;
    if (!operation.started) {
      operation.started = true;
      operation.first_chunk = contributed_;
    }
    const bool moved = advance(operation, queue);
    if (gathered_ < operation.end() && !stopped_.load(std::memory_order_relaxed))
      return moved ? TaskState::Advanced : TaskState::Pending;
    turn_.store(operation.call.sequence + 1, std::memory_order_release);
  }
  close(operation);
  return TaskState::Done;
}

bool Member::advance(HostCall& operation, const TaskQueue& queue) {
  size_t work = 0;
  bool moved = false, unsaid = false;
  int looks = kLooks;
  while (gathered_ < operation.end() && work < queue.piece_bytes() && !stopped_.load()) {
    bool more = contribute(operation, queue, work);
    more |= reduce(operation, queue, work);
    more |= gather(operation, queue, work);
    if (more) {
      moved = unsaid = true;
      continue;
    }
    if (std::exchange(unsaid, false)) wake_members();
    if (looks-- == 0) break;
    cpu_pause();
  }
  if (unsaid) wake_members();
  return moved;
}

bool Member::all_reached(Counter RankControl::* counter, uint64_t target, uint64_t& known) const {
  if (known >= target) return true;
  uint64_t least = ~uint64_t{0};
  for (int r = 0; r < n_ranks(); ++r) {
    const Counter& theirs = segment_.control(r).*counter;
    least = std::min(least, theirs.value.load());
    if (least < target) return false;
  }
  known = least;
  return true;
}

bool Member::contribute(HostCall& operation, const TaskQueue& queue, size_t& work) {
  const uint64_t chunk = contributed_;
  if (chunk == operation.end()) return false;
  if (chunk >= kDepth && !all_reached(&RankControl::gathered, chunk + 1 - kDepth, all_gathered_))
    return false;
  if (chunk == operation.first_chunk)
    segment_.descriptor(rank_, chunk) = {operation.call, operation.factor, operation.n_chunks,
                                         operation.exchange.balance()};
  if (operation.call.kind == Kind::Exchange)
    send_chunk(operation, queue, work);
  else
    contribute_chunk(operation, queue, work);
  segment_.control(rank_).contributed.value.store(++contributed_);
  return true;
}

bool Member::reduce(HostCall& operation, const TaskQueue& queue, size_t& work) {
  const uint64_t chunk = reduced_;
  if (chunk == contributed_ || !all_reached(&RankControl::contributed, chunk + 1, all_contributed_))
    return false;
  if (chunk == operation.first_chunk && !read_calls(operation)) return false;
  if (operation.call.kind == Kind::AllReduce)
    all_reduce_chunk(operation, queue, work);
  else if (operation.call.kind == Kind::Reduce)
    reduce_chunk(operation, queue, work);
  else if (operation.call.kind == Kind::Exchange)
    take_chunk(operation, queue, work);
  else
    receive_chunk(operation, queue, work);
  RankControl& mine = segment_.control(rank_);
  if (operation.two_stage) {
    mine.reduced.value.store(++reduced_);
  } else {
    // Nobody waits for this value of `reduced`; the next two-stage operation stores a larger one.
    ++reduced_;
    mine.gathered.value.store(++gathered_);
  }
  return true;
}

bool Member::gather(const HostCall& operation, const TaskQueue& queue, size_t& work) {
  const uint64_t chunk = gathered_;
  if (!operation.two_stage || chunk == reduced_ ||
      !all_reached(&RankControl::reduced, chunk + 1, all_reduced_))
    return false;
  const Shard& shard = operation.shards.front();
  const size_t element = operation.element();
  const Range piece = operation.piece(shard.count, chunk - operation.first_chunk);
  copies_.clear();
  for (int r = 0; r < n_ranks(); ++r) {
    const Range segment = operation.segment(piece.count(), r, n_ranks());
    if (r == rank_ || segment.count() == 0) continue;
    copies_.push_back({at(queue, shard.recv, (piece.begin + segment.begin) * element),
                       slot(operation, r, chunk) + segment.begin * element,
                       segment.count() * element});
  }
  queue.copy(copies_, caching_of(operation));
  work += piece.count() * element;
  segment_.control(rank_).gathered.value.store(++gathered_);
  return true;
}

// Copies this rank's data into its slot. All-reduce: data that other ranks will reduce. Reduce:
// every piece for another root. Broadcast: the pieces of which this rank is the root.
void Member::contribute_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work) {
  const Kind kind = operation.call.kind;
  std::byte* mine = slot(operation, rank_, contributed_);
  const size_t element = operation.element();
  copies_.clear();
  const auto copy = [&](size_t offset, const Shard& shard, Range range) {
    if (range.count() == 0) return;
    copies_.push_back(
        {mine + offset, at(queue, shard.send, range.begin * element), range.count() * element});
    work += range.count() * element;
  };
  size_t offset = 0;
  for (const Shard& shard : operation.shards) {
    const Range piece = operation.piece(shard.count, contributed_ - operation.first_chunk);
    if (kind == Kind::AllReduce && operation.two_stage) {
      // Skip this rank's own segment, which it reads in place.
      const Range own = operation.segment(piece.count(), rank_, n_ranks());
      copy(0, shard, {piece.begin, piece.begin + own.begin});
      copy(own.end * element, shard, {piece.begin + own.end, piece.end});
    } else if (kind == Kind::AllReduce || (kind == Kind::Reduce) == (shard.root != rank_)) {
      copy(offset, shard, piece);
    }
    if (kind != Kind::Broadcast || shard.root == rank_) offset += operation.slot_bytes(piece);
  }
  queue.copy(copies_);
}

// Computes dst[i] = op over the ranks, in rank order: this rank's elements from `own`, the others'
// from their slots.
void Member::combine(const HostCall& operation, const TaskQueue& queue, std::byte* dst,
                     const std::byte* own, size_t offset, size_t count, Caching caching) {
  for (int r = 0; r < n_ranks(); ++r)
    sources_[static_cast<size_t>(r)] = r == rank_ ? own : slot(operation, r, reduced_) + offset;
  queue.reduce(dst, sources_.data(), n_ranks(), count, operation.call.type, operation.call.op,
               static_cast<uint32_t>(n_ranks()), factors_.data(), caching);
}

void Member::all_reduce_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work) {
  const Shard& shard = operation.shards.front();
  const size_t element = operation.element();
  const Range piece = operation.piece(shard.count, reduced_ - operation.first_chunk);
  Range mine{0, piece.count()};
  if (operation.two_stage) mine = operation.segment(piece.count(), rank_, n_ranks());
  if (mine.count() == 0) return;
  const size_t begin = (piece.begin + mine.begin) * element;
  auto* recv = static_cast<std::byte*>(at(queue, shard.recv, begin));
  combine(operation, queue, recv, static_cast<const std::byte*>(at(queue, shard.send, begin)),
          mine.begin * element, mine.count(), Caching::Keep);  // read again below
  if (operation.two_stage)
    queue.copy(slot(operation, rank_, reduced_) + mine.begin * element, recv,
               mine.count() * element);
  work += mine.count() * element * static_cast<size_t>(n_ranks());
}

void Member::reduce_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work) {
  const size_t element = operation.element();
  size_t offset = 0;
  for (const Shard& shard : operation.shards) {
    const Range piece = operation.piece(shard.count, reduced_ - operation.first_chunk);
    if (shard.root == rank_ && piece.count() > 0) {
      combine(operation, queue,
              static_cast<std::byte*>(at(queue, shard.recv, piece.begin * element)),
              static_cast<const std::byte*>(at(queue, shard.send, piece.begin * element)), offset,
              piece.count(), caching_of(operation));
      work += piece.count() * element * static_cast<size_t>(n_ranks());
    }
    offset += operation.slot_bytes(piece);
  }
}

void Member::receive_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work) {
  const size_t element = operation.element();
  std::fill(offsets_.begin(), offsets_.end(), 0);
  copies_.clear();
  for (const Shard& shard : operation.shards) {
    const Range piece = operation.piece(shard.count, reduced_ - operation.first_chunk);
    size_t& offset = offsets_[static_cast<size_t>(shard.root)];
    const std::byte* from = slot(operation, shard.root, reduced_) + offset;
    offset += operation.slot_bytes(piece);
    // The root may not want a copy of its own data.
    const bool wanted = (shard.receiver < 0 || shard.receiver == rank_) &&
                        (shard.root != rank_ || (shard.recv && shard.recv != shard.send));
    if (!wanted || piece.count() == 0) continue;
    copies_.push_back(
        {at(queue, shard.recv, piece.begin * element), from, piece.count() * element});
    work += piece.count() * element;
  }
  queue.copy(copies_, caching_of(operation));
}

bool Member::read_calls(HostCall& operation) {
  const bool exchange = operation.call.kind == Kind::Exchange;
  uint64_t balance = 0;
  for (int r = 0; r < n_ranks(); ++r) {
    if (!compare_call(operation, r)) return false;
    const CallDescriptor& theirs = segment_.descriptor(r, operation.first_chunk);
    factors_[static_cast<size_t>(r)] = theirs.factor;
    balance += theirs.balance;
    if (exchange) operation.n_chunks = std::max(operation.n_chunks, theirs.n_chunks);
  }
  if (!exchange || balance == 0) return true;
  find_unmatched(operation);
  return false;
}

bool Member::compare_call(const HostCall& operation, int r) {
  const Called& theirs = segment_.descriptor(r, operation.first_chunk).call;
  if (agree(operation.call, theirs)) return true;
  const std::string mine_text = describe(operation.call), their_text = describe(theirs);
  const Status status = hetccl::error(
      ErrorCode::InvalidUsage,
      "ranks of one host cluster called different collectives: cluster rank %d has %s, cluster "
      "rank %d has %s%s; every rank must issue the same calls in the same order",
      rank_, mine_text.c_str(), r, their_text.c_str(),
      mine_text == their_text ? " with other roots or counts of shards" : "");
  fail(status, Disagreement{std::min(operation.call.number, theirs.number), rank_, r});
  return false;
}

void Member::wake_members() {
  // Pairs with `arm`. Counters and `sleeping` are written and read in one total order (seq_cst), so
  // either this rank sees the sleeper, or the sleeper's next poll sees this rank's counters.
  for (int r = 0; r < n_ranks(); ++r) {
    std::atomic<uint32_t>& sleeping = segment_.control(r).sleeping;
    if (r != rank_ && sleeping.load() != 0 && sleeping.exchange(0) != 0)
      peers_[static_cast<size_t>(r)].ring();
  }
}

void Member::leave() {
  if (turn_.load(std::memory_order_acquire) == opened_) return;
  fail(hetccl::error(ErrorCode::Aborted,
                     "cluster rank %d destroyed its communicator before its operations had ended",
                     rank_));
}

void Member::arm() {
  segment_.control(rank_).sleeping.store(1);
}

void Member::disarm() {
  segment_.control(rank_).sleeping.store(0, std::memory_order_relaxed);
}

bool Member::failed() const {
  return stopped_.load(std::memory_order_acquire) || segment_.failed();
}

Status Member::error() const {
  if (!failed()) return {};
  {
    std::lock_guard lock(error_mutex_);
    if (!error_.ok()) return error_;
  }
  return segment_.failure();
}

std::optional<Disagreement> Member::disagreement() const {
  if (!failed()) return std::nullopt;
  {
    std::lock_guard lock(error_mutex_);
    if (!error_.ok()) return between_;
  }
  return segment_.disagreement();
}

void Member::fail(const Status& status, const std::optional<Disagreement>& between) {
  {
    std::lock_guard lock(error_mutex_);
    if (error_.ok()) {
      error_ = status;
      between_ = between;
    }
  }
  stopped_.store(true, std::memory_order_release);
  segment_.fail(status, between);
  wake_members();
}

void Member::abort() {
  fail(hetccl::error(ErrorCode::Aborted, "cluster rank %d aborted the communicator", rank_));
  if (waker_) waker_->ring();
}

}  // namespace hetccl::ccl::host
