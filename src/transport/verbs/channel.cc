#include "transport/verbs/channel.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/little_endian.h"
#include "transport/verbs/locked_memory.h"

namespace hetccl::transport::verbs {
namespace {

constexpr int kCompletionsPerTurn = 64;
// Each end sends over the connection its greeting, its queue pair's address, a byte once it can
// receive, and when it closes two counts: how many of its own frames and chunks the peer has, and
// how many of the peer's have arrived.
constexpr uint8_t kReceiving = 'R';
constexpr size_t kGoodbyeBytes = 16;

// The time after which a device gives up on a packet that nobody acknowledges.
Duration retry_time(const Config& config) {
  constexpr int64_t kUnit = 4096;  // ns
  return Duration((kUnit << config.rdma_timeout) * (config.rdma_retries + 1));
}

}  // namespace

VerbsChannel::VerbsChannel(Ends ends, net::Wire wire, std::shared_ptr<Core> core)
    : ends_(std::move(ends)),
      peer_(ends_.peer),
      core_(std::move(core)),
      wire_(std::move(wire)),
      slots_(nullptr, std::free) {}

Result<std::unique_ptr<VerbsChannel>> VerbsChannel::create(Ends ends, net::Wire wire,
                                                           std::shared_ptr<Core> core) {
  std::unique_ptr<VerbsChannel> made(
      new VerbsChannel(std::move(ends), std::move(wire), std::move(core)));
  HETCCL_TRY(made->start());
  return made;
}

Status VerbsChannel::start() {
  const Greeting greeting = greet(ends_);
  HETCCL_TRY(write_wire(greeting.data(), greeting.size()));
  const std::lock_guard lock(core_->mutex);
  HETCCL_TRY(core_->add(*this, wire_.fd()));
  read_wire();  // bytes of the peer may wait in this process already, and no poll would show them
  return {};
}

// Both ends have both greetings now, and choose the same ports.
Status VerbsChannel::choose_port() {
  Greeting greeting;
  std::copy_n(from_wire_.begin(), greeting.size(), greeting.begin());
  from_wire_.erase(from_wire_.begin(), from_wire_.begin() + greeting.size());
  const Status understood = take_greeting(greeting, ends_);
  if (!understood.ok()) return defect(understood.message().c_str());
  const auto pair = choose_pair(ends_);
  if (!pair) return defect("it has no port that this rank's reach");  // the peer offered one before
  port_ = core_->ports()[pair->first];
  device_ = core_->registry().number_of(*port_.device);
  stage_ = Stage::Meeting;
  return make_queues().with(format("RDMA to rank %d over %s", peer_, port_.name.c_str()));
}

Status VerbsChannel::make_queues() {
  constexpr size_t kBytes = kSlots * kSlotBytes;
  slots_.reset(static_cast<uint8_t*>(std::aligned_alloc(kPageBytes, kBytes)));
  if (slots_ == nullptr) return error(ErrorCode::SystemError, "no memory for an RDMA channel");
  std::memset(slots_.get(), 0, kBytes);
  bool again = false;
  HETCCL_ASSIGN(slots_region_,
                port_.device->register_memory(slots_.get(), kBytes, abi::kLocalWrite, &again));
  for (uint8_t i = 0; i < ends_.queues; ++i) {
    const uint32_t sends = i == 0 ? kSends : kGrants, receives = i == 0 ? kReceives : kGrants;
    HETCCL_ASSIGN(auto queue,
                  QueuePair::create(port_, {.sends = sends, .receives = receives, .user = this}));
    queues_.push_back(std::move(queue));
  }
  if (core_->registry().has_device_memory()) HETCCL_TRY(make_loopback());
  arm();  // an engine that is asleep has not armed this queue
  for (uint32_t slot = 0; slot < kReceives; ++slot) HETCCL_TRY(repost(slot));
  for (uint32_t slot = kReceives + kSendSlots; slot-- > kReceives;) free_slots_.push_back(slot);
  std::vector<uint8_t> addresses(queues_.size() * kQpAddressBytes);
  for (size_t i = 0; i < queues_.size(); ++i) {
    for (uint32_t n = 0; i > 0 && n < kGrants; ++n)
      HETCCL_TRY(queues_[i]->post_receive(id_of(Work::Landing, 0)));
    encode(queues_[i]->address(), addresses.data() + i * kQpAddressBytes);
  }
  return write_wire(addresses.data(), addresses.size());
}

VerbsChannel::~VerbsChannel() {
  close();
}

// Destroys queue pairs before the memory that they may access.
void VerbsChannel::close() {
  const std::lock_guard lock(core_->mutex);
  if (std::exchange(closed_, true)) return;
  core_->remove(*this);
  if (!peer_closed_) core_->unwatch(wire_.fd());
  keep(error(ErrorCode::Aborted, "the channel to rank %d was closed by this rank", peer_));
  if (stage_ == Stage::Open && !peer_closed_) {
    uint8_t goodbye[kGoodbyeBytes];
    put_number(goodbye, delivered_);
    put_number(goodbye + 8, arrived_);
    (void)write_wire(goodbye, sizeof goodbye).ok();  // if the peer has gone, it needs no goodbye
  }
  queues_.clear();
  loopback_.reset();
  for (Chunk& chunk : writes_) release(chunk, core_->writes);
  for (Chunk& chunk : granted_) release(chunk, core_->grants);
  slots_region_.reset();
  wire_.reset();
  sends_.clear();
  recvs_.clear();
  copies_.clear();
}

// A new socket takes this few bytes at once.
Status VerbsChannel::write_wire(const uint8_t* data, size_t bytes) {
  const iovec part{const_cast<uint8_t*>(data), bytes};
  size_t written = 0;
  const net::Io result = wire_.write({&part, 1}, &written);
  if (result == net::Io::Moved && written == bytes) return {};
  return error(ErrorCode::RemoteError, "connection to rank %d closed (%s)", peer_,
               result == net::Io::Failed ? wire_.failure().c_str() : "it takes nothing");
}

void VerbsChannel::on_readable() {
  read_wire();
}

void VerbsChannel::read_wire() {
  uint8_t buffer[64];
  while (!peer_closed_) {
    const iovec part{buffer, sizeof buffer};
    size_t got = 0;
    const net::Io result = wire_.read({&part, 1}, &got);
    if (result == net::Io::Moved) {
      from_wire_.insert(from_wire_.end(), buffer, buffer + got);
      keep(take_wire_bytes());
      if (ended()) core_->unwatch(wire_.fd());
      if (ended()) return;
      continue;
    }
    if (result == net::Io::Blocked) return;
    peer_closed_ = true;
    core_->unwatch(wire_.fd());
  }
}

Status VerbsChannel::take_wire_bytes() {
  if (stage_ == Stage::Choosing && from_wire_.size() >= sizeof(Greeting)) HETCCL_TRY(choose_port());
  if (stage_ == Stage::Meeting && from_wire_.size() >= queues_.size() * kQpAddressBytes)
    HETCCL_TRY(meet());
  if (stage_ == Stage::Connected && !from_wire_.empty()) {
    if (from_wire_.front() != kReceiving) return defect("it does not say that it receives");
    from_wire_.erase(from_wire_.begin());
    for (const auto& queue : queues_) HETCCL_TRY(explain(queue->start_sending(core_->config())));
    stage_ = Stage::Open;
    HETCCL_TRY(send_messages());
  }
  if (stage_ != Stage::Open || from_wire_.size() < kGoodbyeBytes) return {};
  peer_delivered_ = get_number<uint64_t>(from_wire_.data());
  peer_arrived_ = get_number<uint64_t>(from_wire_.data() + 8);
  // The peer cannot have seen more than the receives and requests that this end has outstanding.
  const bool sound = from_wire_.size() == kGoodbyeBytes &&
                     peer_delivered_ <= arrived_ + kReceives &&
                     peer_arrived_ <= delivered_ + kSends;
  return sound ? Status() : defect("what it says as it leaves cannot be");
}

Status VerbsChannel::meet() {
  for (const auto& queue : queues_) {
    const auto theirs = decode_qp(from_wire_.data());
    if (!theirs.ok()) return defect(theirs.status().message().c_str());
    from_wire_.erase(from_wire_.begin(), from_wire_.begin() + kQpAddressBytes);
    HETCCL_TRY(explain(queue->start_receiving(theirs.value(), core_->config())));
  }
  stage_ = Stage::Connected;
  return write_wire(&kReceiving, 1);
}

void VerbsChannel::arm() {
  if (armed_ || ended() || queues_.empty()) return;
  for (const auto& queue : queues_)
    if (!broken_) keep(queue->arm());
  if (loopback_ != nullptr) keep(loopback_->arm());
  armed_ = true;
}

void VerbsChannel::take_event(const Device& device, const abi::AsyncEvent& event) {
  if (port_.device.get() != &device || !is_concerned(event)) return;
  broken_ = true;
  if (why_broken_.ok())
    why_broken_ = error(ErrorCode::RemoteError, "RDMA to rank %d over %s failed: %s", peer_,
                        port_.name.c_str(), device.api().event_text(event.type));
}

bool VerbsChannel::is_concerned(const abi::AsyncEvent& event) const {
  if (loopback_ != nullptr && loopback_->is_concerned(event)) return true;
  return std::any_of(queues_.begin(), queues_.end(),
                     [&](const auto& queue) { return queue->is_concerned(event); });
}

bool VerbsChannel::progress() {
  if (ended()) return false;
  const bool moved = (stage_ < Stage::Connected || broken_ ? false : poll()) | advance();
  look_for_end(moved);
  return moved || ended();
}

bool VerbsChannel::poll() {
  bool moved = false;
  for (const auto& queue : queues_) moved |= poll(*queue);
  return moved;
}

bool VerbsChannel::poll(QueuePair& queue) {
  std::array<abi::Wc, 16> completions;
  bool moved = false;
  for (int left = kCompletionsPerTurn; left > 0 && !ended() && !broken_;) {
    const int n = queue.poll(completions);
    if (n < 0) {
      keep(error(ErrorCode::RemoteError, "RDMA to rank %d over %s failed: its device has failed",
                 peer_, port_.name.c_str()));
      return true;
    }
    for (int i = 0; i < n && !ended(); ++i)
      keep(handle(completions[static_cast<size_t>(i)], queue));
    moved |= n > 0;
    left -= n;
    if (n < static_cast<int>(completions.size())) break;
  }
  return moved;
}

Status VerbsChannel::handle(const abi::Wc& completion, QueuePair& queue) {
  if (completion.status != abi::kWcSuccess) {
    note_error(completion);
    return {};
  }
  const auto index = static_cast<uint32_t>(completion.id);
  const auto work = static_cast<Work>(completion.id >> 32U);
  if (work == Work::Arrival) return handle_arrival(completion);
  if (work == Work::Landing) {
    ++arrived_;
    if (completion.opcode != abi::kWcRecvRdmaWithImm) return defect("it sends where it may write");
    HETCCL_TRY(finish_grant(ntohl(completion.immediate), completion.bytes));
    return queue.post_receive(completion.id);
  }
  ++delivered_;
  if (work == Work::Frame)
    finish_frame(index);
  else
    finish_chunk(index);
  return {};
}

Status VerbsChannel::handle_arrival(const abi::Wc& completion) {
  const auto slot = static_cast<uint32_t>(completion.id);
  ++arrived_;
  if (completion.opcode == abi::kWcRecvRdmaWithImm) {
    HETCCL_TRY(finish_grant(ntohl(completion.immediate), completion.bytes));
    return repost(slot);
  }
  const uint8_t* bytes = slot_at(slot);
  const auto read_frame = decode_frame(bytes, completion.bytes);
  if (!read_frame.ok()) return defect(read_frame.status().message().c_str());
  const Frame& frame = read_frame.value();
  credits_ += frame.credits;
  if (credits_ > kCredits) return defect("it returns too many credits");
  if (frame.kind == FrameKind::Grant) HETCCL_TRY(accept_grant(decode_grant(bytes + kFrameBytes)));
  if (frame.kind == FrameKind::Grant || frame.kind == FrameKind::Credits) return repost(slot);
  const size_t payload = completion.bytes - kPrefixBytes;
  const auto read_header = transport::decode(bytes + kFrameBytes);
  if (!read_header.ok()) return defect(read_header.status().message().c_str());
  const Header& header = read_header.value();
  const bool whole = frame.kind == FrameKind::Whole;
  const bool sound = header.offset == 0 && header.bytes == header.total &&
                     payload == (whole ? header.total : 0) && (whole || header.total > 0);
  if (!sound || inbox_.size() >= kCredits) return defect("its messages do not fit their headers");
  inbox_.push(slot);
  return {};
}

// A failed queue pair completes everything posted with an error. The first error that is not a
// flush gives the reason.
void VerbsChannel::note_error(const abi::Wc& completion) {
  const Api& api = port_.device->api();
  broken_ = true;
  if (completion.status == abi::kWcFlushed || !why_broken_.ok()) return;
  const bool unreachable = completion.status == abi::kWcRetryExceeded;
  why_broken_ =
      error(ErrorCode::RemoteError, "RDMA to rank %d over %s failed: %s (vendor error 0x%x)%s",
            peer_, port_.name.c_str(), api.status_text(completion.status), completion.vendor_error,
            unreachable ? ". It does not answer: check that the ports reach each other, "
                          "name others with HETCCL_RDMA_DEVICES, or set "
                          "HETCCL_TRANSPORT=tcp"
                        : "");
}

// Takes the steps that completions have made possible.
bool VerbsChannel::advance() {
  if (ended()) return false;
  const uint64_t before = sends_completed_ + recvs_completed_ + begun_ + matched_;
  keep(end_copies());
  if (!ended()) keep(match());
  if (!ended() && !broken_ && stage_ == Stage::Open) {
    keep(send_messages());
    if (!ended()) keep(write_chunks());
    if (!ended()) keep(grant_chunks());
    if (!ended()) keep(return_credits());
  }
  return before != sends_completed_ + recvs_completed_ + begun_ + matched_;
}

// Delivers the messages that the peer sent before it closed, then fails the channel. If nothing is
// posted, a message that has arrived whole still waits for its receive. Long messages never
// complete, nor do sends that the peer has not taken.
void VerbsChannel::look_for_end(bool moved) {
  if (moved) gives_up_ = {};
  if (ended() || moved) return;
  if (broken_ && !peer_closed_) read_wire();
  if (peer_closed_) {
    if (awaits_more() || copying_ > 0) return;
    const bool cut =
        !recvs_.empty() || !sends_.empty() || inbox_.empty() || is_long(inbox_.front());
    if (cut) keep(closed());
  } else if (broken_ && why_broken_.ok() && !std::exchange(looked_, true)) {
    core_->look();  // an event may tell why
  } else if (broken_) {
    keep(why_broken_.ok() ? error(ErrorCode::RemoteError,
                                  "RDMA to rank %d over %s failed: its queue pair has failed",
                                  peer_, port_.name.c_str())
                          : why_broken_);
  }
}

// Returns whether completions are still due, because one end knows that frames or chunks have
// arrived.
bool VerbsChannel::awaits_more() {
  const bool all = arrived_ >= peer_delivered_ && delivered_ >= peer_arrived_;
  if (all || broken_ || stage_ != Stage::Open) return false;
  const TimePoint now = steady_clock().now();
  if (gives_up_ == TimePoint()) gives_up_ = now + retry_time(core_->config());
  return now < gives_up_;
}

// If memory cannot be locked, sets `*again` to whether that may change. A grant ends when the peer
// writes, and the peer's write may wait for memory, too. So a write waits only for other writes, or
// both ends could wait for each other.
Result<Region> VerbsChannel::register_chunk(void* data, size_t bytes, unsigned access,
                                            bool* again) {
  const bool granted = (access & abi::kRemoteWrite) != 0;
  auto region = port_.device->register_memory(data, bytes, access, again);
  if (region.ok()) ++(granted ? core_->grants : core_->writes);
  *again = *again && (core_->writes > 0 || (granted && core_->grants > 0));
  return region;
}

void VerbsChannel::release(Chunk& chunk, std::atomic<size_t>& under_way) {
  chunk.under_way = false;
  chunk.pieces = {};
  if (!chunk.region.valid()) return;
  chunk.region.reset();
  --under_way;
}

Status VerbsChannel::repost(uint32_t slot) {
  return queues_.front()->post_receive(
      id_of(Work::Arrival, slot),
      {reinterpret_cast<uintptr_t>(slot_at(slot)), kSlotBytes, slots_region_.local_key()});
}

// Returns the header of a message in the inbox. It was checked on arrival.
Header VerbsChannel::header_of(uint32_t slot) const {
  const auto header = transport::decode(slots_.get() + slot * kSlotBytes + kFrameBytes);
  return header.ok() ? header.value() : Header{};
}

bool VerbsChannel::is_long(uint32_t slot) const {
  const auto frame = decode_frame(slots_.get() + slot * kSlotBytes, kSlotBytes);
  return frame.ok() && frame.value().kind == FrameKind::Long;
}

std::optional<MessageInfo> VerbsChannel::incoming() {
  if (ended() || !recvs_.empty() || inbox_.empty()) return std::nullopt;
  return header_of(inbox_.front()).info;
}

void VerbsChannel::keep(const Status& status) {
  if (status_.ok() && !status.ok()) status_ = status;
}

Status VerbsChannel::closed() const {
  return error(ErrorCode::RemoteError, "connection to rank %d closed (by that rank)", peer_);
}

// Adds the likely reason why a device does not connect a queue pair, such as no route to the peer.
Status VerbsChannel::explain(const Status& status) const {
  if (status.ok()) return status;
  return status.with(
      format("RDMA to rank %d over %s cannot begin: check that the ports reach each other, name "
             "others with HETCCL_RDMA_DEVICES, or set HETCCL_TRANSPORT=tcp",
             peer_, port_.name.c_str()));
}

Status VerbsChannel::defect(const char* what) const {
  return error(ErrorCode::RemoteError, "rank %d broke the protocol of its RDMA channel: %s", peer_,
               what);
}

}  // namespace hetccl::transport::verbs
