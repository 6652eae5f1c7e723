#include "onesided/inbox.h"

#include <algorithm>
#include <utility>

#include "onesided/outbox.h"

namespace hetccl::onesided {

namespace {

// Devices begin to copy once so much of a landing is there.
constexpr size_t kCopiesAtOnce = 64;

}  // namespace

Status Inbox::progress(bool reads, const OnFrame& on_frame, bool* moved) {
  *moved |= settle();
  for (;;) {
    switch (state_) {
      case State::Idle:
        if (!reads || !channel_.incoming()) return {};
        HETCCL_TRY(begin_frame(moved));
        break;
      case State::Frame:
        if (!all_here()) return {};
        *moved = true;
        HETCCL_TRY(end_frame(on_frame));
        break;
      case State::Pieces:
        take_pieces(moved);
        HETCCL_TRY(post_pieces(moved));
        take_pieces(moved);
        if (next_ < landing_.pieces.size() || !posted_.empty()) return {};
        end_pieces();
        *moved |= settle();
        break;
    }
  }
}

void Inbox::post(void* data, size_t bytes, size_t frame_bytes) {
  transport::Parcel parcel;
  parcel.data = data;
  parcel.bytes = bytes;
  parcel.info = header_of(communicator_, n_posted_++, frame_bytes);
  channel_.post_recv(parcel);
}

Status Inbox::begin_frame(bool* moved) {
  const size_t bytes = channel_.incoming()->slice;
  if (bytes == 0 || bytes > kMaxFrame) {
    return error(ErrorCode::RemoteError, "it sent %zu bytes where a frame has to come", bytes);
  }
  frame_.resize(bytes);
  post(frame_.data(), bytes, bytes);
  state_ = State::Frame;
  *moved = true;
  return {};
}

Status Inbox::end_frame(const OnFrame& on_frame) {
  n_taken_ = n_posted_;
  const auto frame = decode(frame_);
  if (!frame) return error(ErrorCode::RemoteError, "it sent a malformed frame");
  HETCCL_ASSIGN(landing_, on_frame(*frame));
  next_ = 0;
  state_ = State::Pieces;
  return {};
}

Status Inbox::post_pieces(bool* moved) {
  for (; next_ < landing_.pieces.size() && posted_.size() < kMostPosted; ++next_) {
    const Expected& piece = landing_.pieces[next_];
    Posted posted{next_};
    void* data = piece.data;
    if (piece.data == nullptr) {
      if (dropping_) return {};  // receives that are outstanding together share no memory
      if (dropped_ == nullptr) dropped_ = std::make_unique<std::byte[]>(kMaxPiece);
      data = dropped_.get();
      dropping_ = true;
    } else if (piece.on_device) {
      HETCCL_ASSIGN(posted.place, staging_.take(piece.bytes));
      if (posted.place.memory == nullptr) return {};
      data = posted.place.memory;
    }
    post(data, piece.bytes, 0);
    posted_.push_back(std::move(posted));
    *moved = true;
  }
  return {};
}

void Inbox::take_pieces(bool* moved) {
  const uint64_t completed = channel_.recvs_completed();
  for (; n_taken_ < completed && !posted_.empty(); ++n_taken_) {
    Posted posted = std::move(posted_.front());
    posted_.pop_front();
    const Expected& piece = landing_.pieces[posted.index];
    if (piece.data == nullptr) dropping_ = false;
    if (posted.place.memory != nullptr) {
      copies_.push_back({piece.data, posted.place.memory, piece.bytes});
      if (chunks_.empty() || chunks_.back().second != posted.place.chunk ||
          chunks_.back().first != 0)
        chunks_.emplace_back(0, std::move(posted.place.chunk));
    }
    *moved = true;
  }
  const bool ends = next_ == landing_.pieces.size() && posted_.empty();
  const bool starved = next_ < landing_.pieces.size();
  if (copies_.empty() || !(ends || starved || copies_.size() >= kCopiesAtOnce)) return;
  last_ticket_ = stager_->enqueue(std::exchange(copies_, {}), std::exchange(landing_.after, {}));
  for (auto& [ticket, chunk] : chunks_) {
    if (ticket == 0) ticket = last_ticket_;
  }
}

void Inbox::end_pieces() {
  landings_.push_back({last_ticket_, std::move(landing_.landed), std::move(landing_.uses)});
  landing_ = {};
  staging_.rest();
  state_ = State::Idle;
}

bool Inbox::settle() {
  bool moved = false;
  const auto reached = [&](uint32_t ticket) { return ticket == 0 || stager_->reached(ticket); };
  while (!chunks_.empty() && chunks_.front().first != 0 && reached(chunks_.front().first)) {
    chunks_.pop_front();
    moved = true;
  }
  while (!landings_.empty() && reached(landings_.front().ticket)) {
    const auto done = std::move(landings_.front().done);
    landings_.pop_front();
    if (done) done();
    moved = true;
  }
  return moved;
}

bool Inbox::touches(const Region& region) const {
  const auto use = [&](const std::vector<Use>& uses) {
    return std::any_of(uses.begin(), uses.end(), [&](const Use& one) { return one.is_of(region); });
  };
  return use(landing_.uses) || std::any_of(landings_.begin(), landings_.end(),
                                           [&](const Waiting& one) { return use(one.uses); });
}

}  // namespace hetccl::onesided
