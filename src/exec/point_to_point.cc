// The engine's side: what is under way, its completion, deadlines, abort. point_to_point_launch.cc
// is the caller's side.
#include "exec/point_to_point.h"

#include <algorithm>
#include <utility>

namespace hetccl::exec {

std::string describe(const Message& message) {
  if (message.peer == kAnyRank) {
    return format("recv of %llu %s from any rank%s", static_cast<unsigned long long>(message.count),
                  name_of(message.type).data(),
                  message.tag == 0 ? "" : format(" with tag %u", message.tag).c_str());
  }
  return format("%s of %llu %s %s rank %d", message.send ? "send" : "recv",
                static_cast<unsigned long long>(message.count), name_of(message.type).data(),
                message.send ? "to" : "from", message.peer);
}

size_t PointToPoint::Transit::bytes_of(uint32_t piece) const {
  const size_t begin = piece * piece_bytes;
  return std::min(piece_bytes, bytes() - std::min(begin, bytes()));
}

std::byte* PointToPoint::Transit::user_memory(uint32_t piece) const {
  auto* data = static_cast<std::byte*>(message.data);
  return data == nullptr ? nullptr : data + piece * piece_bytes;
}

std::byte* PointToPoint::Transit::wire_memory(uint32_t piece) const {
  return staging == nullptr ? user_memory(piece) : staging + (piece % slots) * piece_bytes;
}

bool PointToPoint::Batch::ended() {
  if (!exchanged().reached(1)) return false;
  if (streamed || given_up.load(std::memory_order_acquire)) return passed().reached(1);
  const auto drained = [](const Transit& transit) {
    return transit.drained == nullptr || transit.drained->reached(1);
  };
  return (!local || copied().reached(1)) && std::all_of(transits.begin(), transits.end(), drained);
}

bool PointToPoint::done(const Ticket& ticket) {
  return ticket.batch_->use.load(std::memory_order_acquire) != ticket.use_;
}

Status PointToPoint::meet(int peer) {
  const size_t needed = place_of(peer, true) + 1;
  if (lanes_.size() < needed) lanes_.resize(needed);
  for (const bool send : {false, true}) {
    auto lane = std::make_unique<Lane>();
    lane->peer = peer;
    lane->send = send;
    if (staged_) {
      HETCCL_ASSIGN(lane->stream, options_.device->create_stream());
    }
    met_.push_back(lane.get());
    lanes_[place_of(peer, send)] = std::move(lane);
  }
  return {};
}

void PointToPoint::connect(int peer, transport::Channel* channel, bool crosses) {
  if (aborted_) channel->close();
  for (const bool send : {false, true}) {
    Lane& lane = *lanes_[place_of(peer, send)];
    lane.channel = channel;
    lane.crosses = crosses;
  }
}

bool PointToPoint::poll(TimePoint now) {
  admit();
  bool moved = false;
  if (!aborted_) {
    moved = match_any();
    for (Lane* lane : met_) moved |= poll_lane(*lane);
    if (!moved && !faulted_) check(now);
  }
  return retire() || moved;
}

void PointToPoint::admit() {
  const size_t known = running_.size();
  {
    std::lock_guard lock(mutex_);
    running_.insert(running_.end(), launched_.begin(), launched_.end());
    launched_.clear();
  }
  if (aborted_) return release_streams();
  for (size_t n = known; n < running_.size(); ++n) {
    Batch& batch = *running_[n];
    batch.order = admitted_++;
    for (size_t i = 0; i < batch.transits.size(); ++i) {
      const Message& message = batch.transits[i].message;
      if (message.peer == kAnyRank)
        any_.push_back({&batch, i});
      else
        lane_of(message).messages.push({&batch, i});
    }
  }
}

bool PointToPoint::poll_lane(Lane& lane) {
  if (lane.channel == nullptr || lane.messages.empty()) return false;
  bool moved = complete(lane);
  while (post(lane)) moved = true;
  return moved;
}

bool PointToPoint::post(Lane& lane) {
  if (lane.posting == lane.messages.size()) return false;
  const Place place = lane.messages[lane.posting];
  Transit& transit = place.batch->transits[place.index];
  const uint32_t piece = transit.posted;
  if (!place.batch->started().reached(1) || place.batch->given_up) return false;
  if (!lane.send && is_held(lane, place)) return false;
  if (transit.staging != nullptr) {
    const bool ready =
        lane.send ? transit.staged->reached(piece + 1)
                  : piece < transit.slots || transit.done->reached(piece - transit.slots + 1);
    if (!ready) return false;
  }
  transit.number = lane.numbered;
  transport::Transfer transfer;
  transfer.data = transit.wire_memory(piece);
  transfer.bytes = transit.bytes_of(piece);
  transfer.info = {.communicator = options_.communicator,
                   .sequence = transit.number,
                   .slice = piece,
                   .step = transit.message.tag,
                   .signature = {.collective = Collective::PointToPoint,
                                 .type = transit.message.type,
                                 .count = transit.message.count}};
  lane.send ? lane.channel->post_send(transfer) : lane.channel->post_recv(transfer);
  if (++transit.posted == transit.pieces) {
    ++lane.posting;
    ++lane.numbered;
  }
  return true;
}

bool PointToPoint::complete(Lane& lane) {
  const uint64_t now =
      lane.send ? lane.channel->sends_completed() : lane.channel->recvs_completed();
  if (now == lane.completed) return false;
  for (; lane.completed < now; ++lane.completed) {
    const Place place = lane.messages.front();
    Transit& transit = place.batch->transits[place.index];
    const uint32_t pieces = ++transit.completed;
    if (lane.send && lane.crosses) {
      bytes_sent_.fetch_add(transit.bytes_of(pieces - 1), std::memory_order_relaxed);
    }
    if (transit.staging != nullptr) {
      device::Flag& flag = lane.send ? *transit.done : *transit.staged;
      flag.word.store(pieces, std::memory_order_release);
    }
    if (pieces < transit.pieces) continue;
    lane.messages.pop();
    --lane.posting;
    if (--place.batch->unfinished == 0) {
      place.batch->exchanged().word.store(1, std::memory_order_release);
    }
  }
  return true;
}

bool PointToPoint::retire() {
  const size_t before = running_.size();
  std::erase_if(running_, [this](Batch* batch) {
    if (!batch->ended()) return false;
    // Until the abort that is to come, messages may still be under way.
    if (batch->given_up && !aborted_) return false;
    batch->use.fetch_add(1, std::memory_order_release);
    std::lock_guard lock(mutex_);
    free_.push_back(batch);
    return true;
  });
  const size_t ended = before - running_.size();
  if (ended > 0) in_flight_.fetch_sub(ended);
  return ended > 0;
}

void PointToPoint::check(TimePoint now) {
  for (Lane* lane : met_) {
    if (!lane->messages.empty() && !check_lane(*lane, now)) return;
  }
  if (!any_.empty() && !check_senders(now)) return;
  if (now < next_deadline_check_) return;
  next_deadline_check_ = now + std::chrono::milliseconds(1);
  for (Batch* batch : running_) {
    if (now >= batch->deadline && !check_deadline(*batch)) return;
  }
}

// What has arrived from a rank that has left is still to be had.
bool PointToPoint::is_gone(Lane& lane, TimePoint now) const {
  if (options_.departures == nullptr || !options_.departures->has_left(lane.peer)) return false;
  if (lane.left == TimePoint{}) lane.left = now;
  return now - lane.left >= options_.departure_grace;
}

bool PointToPoint::check_lane(Lane& lane, TimePoint now) {
  const bool broken = lane.channel != nullptr && !lane.channel->status().ok();
  const bool gone = is_gone(lane, now);
  if (!gone && !broken) return true;
  if (!gone && lane.left == TimePoint{}) {
    fault({lane.channel->status(), lane.peer, {}});
    return false;
  }
  const Place place = lane.messages.front();
  const Message& message = place.batch->transits[place.index].message;
  fault({error(Code::RemoteError, "%s cannot complete: rank %d has left the communicator",
               describe(message).c_str(), lane.peer),
         lane.peer,
         {}});
  return false;
}

bool PointToPoint::check_deadline(Batch& batch) {
  const auto missing =
      std::find_if(batch.transits.begin(), batch.transits.end(),
                   [](const Transit& transit) { return transit.completed < transit.pieces; });
  if (missing == batch.transits.end()) return true;
  const auto given = std::chrono::round<std::chrono::milliseconds>(batch.deadline - batch.launched);
  const Message& message = missing->message;
  const std::string why = !batch.started().reached(1) ? "the stream has not come to it"
                          : message.peer == kAnyRank ? "no rank has sent it"
                                                     : format("rank %d has not %s it", message.peer,
                                                              message.send ? "received" : "sent");
  fault({error(Code::Timeout, "%s timed out after %lld ms: %s", describe(message).c_str(),
               static_cast<long long>(given.count()), why.c_str()),
         std::max(message.peer, -1),
         {}});
  return false;
}

void PointToPoint::fault(const Fault& fault) {
  faulted_ = true;
  if (options_.on_fault) options_.on_fault(fault);
}

std::vector<PendingMessage> PointToPoint::pending() {
  admit();
  std::vector<PendingMessage> all;
  for (Batch* batch : running_) {
    for (const Transit& transit : batch->transits) {
      if (transit.completed == transit.pieces) continue;
      all.push_back({transit.message, transit.number, transit.pieces, transit.completed,
                     batch->launched, batch->started().reached(1)});
    }
  }
  return all;
}

void PointToPoint::abort() {
  if (aborted_) return;
  admit();
  aborted_ = true;
  for (Lane* lane : met_) {
    if (lane->channel != nullptr) lane->channel->close();
    lane->messages.clear();
  }
  any_.clear();
  release_streams();
}

void PointToPoint::release_streams() {
  if (options_.ccl != nullptr && !options_.ccl->abort_has_begun()) return;
  for (Batch* batch : running_) batch->release_waits();
}

}  // namespace hetccl::exec
