#include "onesided/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "onesided/loader.h"
#include "onesided/outbox.h"

namespace hetccl::onesided {

namespace {

// Arrived pieces are copied to the device in batches of at least this many bytes.
constexpr size_t kCopiedAtOnce = size_t{2} << 20;
// A ticket that no stager returns.
constexpr Stager::Ticket kNotCopied{{UINT64_MAX, UINT64_MAX}};

}  // namespace

Result<Inbox::Landing> Inbox::find_places(const Regions& regions, const Frame& frame) {
  Landing landing;
  landing.way = frame.way;
  landing.pieces.reserve(frame.pieces.size());
  Regions::Lookup lookup(regions);
  for (const Piece& piece : frame.pieces) {
    HETCCL_ASSIGN(Use use, lookup.use(piece.region, piece.offset, piece.bytes, kPut));
    landing.pieces.push_back({use.at(piece.offset), piece.bytes});
    add(landing.uses, std::move(use));
  }
  return landing;
}

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
  const bool has_window = options_.window != nullptr;
  if ((by_window() && !has_window) || (landing_.way == Frame::Way::Runs && has_window) ||
      (landing_.way == Frame::Way::Lists && !channel_.takes_lists()))
    return error(ErrorCode::RemoteError, "its pieces come in a way that was not agreed on");
  inline_ = std::move(frame->data);
  size_t bytes = 0;
  for (const Expected& piece : landing_.pieces) bytes += piece.bytes;
  if (is_inline() && bytes != inline_.size())
    return error(ErrorCode::RemoteError, "it sent %zu bytes for pieces of %zu", inline_.size(),
                 bytes);
  next_ = 0;
  state_ = State::Pieces;
  return {};
}

void Inbox::post_pieces(bool* moved) {
  while (next_ < landing_.pieces.size() && posted_.size() < kMostPosted) {
    Posted posted = next_run();
    if (!stage(posted)) return;
    next_ += posted.n;
    is_inline() ? unpack(posted) : post(posted);
    posted_.push_back(std::move(posted));
    *moved = true;
  }
}

Inbox::Posted Inbox::next_run() const {
  const auto pieces = std::span<const Expected>(landing_.pieces).subspan(next_);
  Posted run;
  run.first = next_;
  run.n = length_of_run(pieces, landing_.way);
  for (const Expected& piece : pieces.first(run.n)) run.bytes += piece.bytes;
  return run;
}

bool Inbox::arrives_in_place(const Posted& run) const {
  const auto pieces = pieces_of(run);
  if (run.n > 1 && !is_inline() && !channel_.takes_lists()) return false;
  return std::all_of(pieces.begin(), pieces.end(), [&](const Expected& piece) {
    return is_inline() ? !piece.to.on_device : piece.to.is_reached(options_.reaches_device);
  });
}

// Finds the places of a run, or a buffer if it cannot arrive directly there. Returns false if there
// is none now.
bool Inbox::stage(Posted& run) {
  const Place& to = landing_.pieces[run.first].to;
  if (by_window()) {
    run.staged = options_.window->in_memory(options_.window->in.place(run.bytes).offset);
  } else if (to.data == nullptr) {
    if (is_inline()) return true;
    if (dropping_) return false;  // outstanding receives must not share memory
    if (dropped_ == nullptr) dropped_ = std::make_unique<std::byte[]>(kMaxPiece);
    dropping_ = true;
  } else if (arrives_in_place(run)) {
    if (run.n == 1) return true;
    for (const Expected& piece : pieces_of(run)) run.list.push_back({piece.to.data, piece.bytes});
  } else {
    auto taken = staging_.take(run.bytes);
    if (taken.memory == nullptr) return false;
    run.staged = taken.memory;
    run.chunk = std::move(taken.chunk);
  }
  return true;
}

void Inbox::post(const Posted& run) {
  const Place& to = landing_.pieces[run.first].to;
  const bool beside = by_window();
  transport::Parcel parcel;
  parcel.data = run.staged != nullptr ? run.staged : to.data != nullptr ? to.data : dropped_.get();
  parcel.bytes = beside ? 0 : run.bytes;
  parcel.list = run.list;
  const auto pieces = pieces_of(run);
  parcel.registered =
      run.staged == nullptr && std::all_of(pieces.begin(), pieces.end(),
                                           [](const Expected& one) { return one.to.registered; });
  parcel.info = header_of(options_.communicator, n_posted_++, 0, beside ? run.bytes : 0);
  channel_.post_recv(parcel);
}

// Takes a run, which is all of the landing, out of the frame.
void Inbox::unpack(Posted& run) {
  const auto* from = reinterpret_cast<const std::byte*>(inline_.data());
  if (run.staged != nullptr) std::memcpy(run.staged, from, run.bytes);
  run.is_here = true;
  if (run.staged != nullptr) return;
  for (const Expected& piece : pieces_of(run)) {
    if (piece.to.data != nullptr) std::memcpy(piece.to.data, from, piece.bytes);
    from += piece.bytes;
  }
}

void Inbox::take_pieces(bool* moved) {
  const uint64_t completed = channel_.recvs_completed();
  while (!posted_.empty() && (posted_.front().is_here || n_taken_ < completed)) {
    Posted run = std::move(posted_.front());
    posted_.pop_front();
    *moved = true;
    if (!run.is_here) ++n_taken_;
    if (landing_.pieces[run.first].to.data == nullptr) dropping_ = false;
    if (run.staged == nullptr) continue;
    const std::byte* from = run.staged;
    for (size_t i = run.first; i < run.first + run.n; ++i) {
      const Expected& piece = landing_.pieces[i];
      if (piece.to.data != nullptr)
        copies_.push_back({{piece.to.data, from, piece.bytes}, piece.to.on_device});
      from += piece.bytes;
    }
    copied_bytes_ += run.bytes;
    held_.push_back({kNotCopied, std::move(run.chunk), by_window()});
    if (copied_bytes_ >= kCopiedAtOnce) copy();
  }
  if (!posted_.empty() && next_ == landing_.pieces.size()) return;
  copy();  // the last pieces, or pieces in buffers that the next ones need
}

void Inbox::copy() {
  if (!copies_.empty()) {
    last_ticket_ = options_.stager->enqueue(std::exchange(copies_, {}));
  }
  copied_bytes_ = 0;
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
  while (!held_.empty() && held_.front().ticket != kNotCopied &&
         reached(options_.stager, held_.front().ticket)) {
    if (held_.front().in_window) options_.window->count_read();
    held_.pop_front();
    moved = true;
  }
  while (!landings_.empty() && reached(options_.stager, landings_.front().ticket)) {
    const auto done = std::move(landings_.front().done);
    landings_.pop_front();
    if (done) done();
    moved = true;
  }
  return moved;
}

bool Inbox::touches(const Region& region) const {
  return are_of(landing_.uses, region) ||
         std::any_of(landings_.begin(), landings_.end(),
                     [&](const Waiting& one) { return are_of(one.uses, region); });
}

}  // namespace hetccl::onesided
