#include "onesided/inbox.h"

#include <algorithm>
#include <utility>

#include "onesided/outbox.h"

namespace hetccl::onesided {

namespace {

// Devices begin to copy once so much of a landing is there.
constexpr size_t kCopiesAtOnce = 64;
// No stager gives it.
constexpr uint32_t kNotCopied = UINT32_MAX;

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
        post_pieces(moved);
        take_pieces(moved);
        if (next_ < landing_.pieces.size() || !posted_.empty()) return {};
        end_pieces();
        *moved |= settle();
        break;
    }
  }
}

Status Inbox::begin_frame(bool* moved) {
  const size_t bytes = channel_.incoming()->slice;
  if (bytes == 0 || bytes > kMaxFrame) {
    return error(ErrorCode::RemoteError, "it sent %zu bytes where a frame has to come", bytes);
  }
  frame_.resize(bytes);
  transport::Parcel parcel;
  parcel.data = frame_.data();
  parcel.bytes = bytes;
  parcel.info = header_of(options_.communicator, n_posted_++, bytes, 0);
  channel_.post_recv(parcel);
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

void Inbox::post_pieces(bool* moved) {
  for (; next_ < landing_.pieces.size() && posted_.size() < kMostPosted; ++next_) {
    const Expected& piece = landing_.pieces[next_];
    Posted posted{next_};
    if (!stage(piece, posted)) return;
    post(posted);
    posted_.push_back(std::move(posted));
    *moved = true;
  }
}

// Finds where a piece comes that does not come straight to its place. False where it has to wait.
bool Inbox::stage(const Expected& piece, Posted& posted) {
  if (options_.window != nullptr) {
    posted.staged = options_.window->in_memory(options_.window->in.place(piece.bytes).offset);
  } else if (piece.to.data == nullptr) {
    if (dropping_) return false;  // receives that are outstanding together share no memory
    if (dropped_ == nullptr) dropped_ = std::make_unique<std::byte[]>(kMaxPiece);
    dropping_ = true;
  } else if (piece.to.on_device && !(piece.to.registered && options_.reaches_device)) {
    auto taken = staging_.take(piece.bytes);
    if (taken.memory == nullptr) return false;
    posted.staged = taken.memory;
    posted.chunk = std::move(taken.chunk);
  }
  return true;
}

void Inbox::post(const Posted& posted) {
  const Expected& piece = landing_.pieces[posted.index];
  const bool beside = options_.window != nullptr;
  transport::Parcel parcel;
  parcel.data = posted.staged != nullptr   ? posted.staged
                : piece.to.data != nullptr ? piece.to.data
                                           : dropped_.get();
  parcel.bytes = beside ? 0 : piece.bytes;
  parcel.registered = posted.staged == nullptr && piece.to.registered;
  parcel.info = header_of(options_.communicator, n_posted_++, 0, beside ? piece.bytes : 0);
  channel_.post_recv(parcel);
}

void Inbox::take_pieces(bool* moved) {
  const uint64_t completed = channel_.recvs_completed();
  for (; n_taken_ < completed && !posted_.empty(); ++n_taken_) {
    Posted posted = std::move(posted_.front());
    posted_.pop_front();
    const Expected& piece = landing_.pieces[posted.index];
    if (piece.to.data == nullptr) {
      dropping_ = false;
    } else if (posted.staged != nullptr) {
      copies_.push_back({piece.to.data, posted.staged, piece.bytes});
    }
    if (posted.staged != nullptr) held_.push_back({kNotCopied, std::move(posted.chunk)});
    *moved = true;
  }
  const bool waits = next_ < landing_.pieces.size() || !posted_.empty();
  const bool starves = next_ < landing_.pieces.size();
  if (waits && !starves && copies_.size() < kCopiesAtOnce) return;
  if (!copies_.empty()) {
    last_ticket_ =
        options_.stager->enqueue(std::exchange(copies_, {}), std::exchange(landing_.after, {}));
  }
  for (auto held = held_.rbegin(); held != held_.rend() && held->ticket == kNotCopied; ++held)
    held->ticket = last_ticket_;
}

void Inbox::end_pieces() {
  landings_.push_back({last_ticket_, std::move(landing_.landed), std::move(landing_.uses)});
  landing_ = {};
  staging_.rest();
  state_ = State::Idle;
}

bool Inbox::settle() {
  bool moved = false;
  while (!held_.empty() && held_.front().ticket != kNotCopied && reached(held_.front().ticket)) {
    if (options_.window != nullptr) options_.window->count_read();
    held_.pop_front();
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
