#include "onesided/loader.h"

#include <algorithm>
#include <utility>

namespace hetccl::onesided {

namespace {

// Pieces that are shorter on average are copied together, for a channel that takes no lists.
constexpr size_t kShort = size_t{128} << 10;
// Host memory goes through a window from this size on, because threads copy there; for a channel
// with a window.
constexpr size_t kLeastInWindow = size_t{256} << 10;
// Copies are enqueued in jobs of this size, so that the first bytes leave early.
constexpr size_t kJobBytes = size_t{2} << 20;

}  // namespace

Frame::Way Loader::way_of(std::span<const Piece> pieces) const {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  if (bytes <= kMaxInline && !pieces.front().from.on_device) return Frame::Way::Inline;
  const bool copied = !reaches(pieces.front());
  if (options_.window != nullptr && (copied || bytes >= kLeastInWindow)) return Frame::Way::Window;
  if (copied) return Frame::Way::Runs;
  if (pieces.size() == 1) return Frame::Way::OneByOne;
  if (options_.takes_lists) return Frame::Way::Lists;
  return bytes / pieces.size() < kShort ? Frame::Way::Runs : Frame::Way::OneByOne;
}

Loader::Loaded Loader::load_inline(std::span<const Piece> pieces) {
  Loaded loaded;
  loaded.n = pieces.size();
  loaded.way = Frame::Way::Inline;
  for (const Piece& piece : pieces) {
    const auto* from = reinterpret_cast<const uint8_t*>(piece.from.data);
    loaded.data.insert(loaded.data.end(), from, from + piece.bytes);
  }
  loaded.bytes = loaded.data.size();
  return loaded;
}

// Lets the channel read a run where it lies.
void Loader::refer(Outbox::Item& item, std::span<const Piece> run) const {
  item.data = run[0].from.data;
  item.registered =
      std::all_of(run.begin(), run.end(), [](const Piece& piece) { return piece.from.registered; });
  if (run.size() == 1) return;
  for (const Piece& piece : run) item.list.push_back({piece.from.data, piece.bytes});
}

// Returns false if there is no room now.
bool Loader::place(Outbox::Item& item, Frame::Way way) {
  if (way == Frame::Way::Window) {
    if (!options_.window->has_room(item.bytes)) return false;
    item.data = options_.window->out_memory(options_.window->out.place(item.bytes).offset);
    item.beside = true;
    return true;
  }
  auto taken = staging_.take(item.bytes);
  item.data = taken.memory;
  item.chunk = std::move(taken.chunk);
  return item.data != nullptr;
}

void Loader::enqueue(Loaded& loaded, std::vector<Stager::Piece>& copies, size_t& first) {
  if (copies.empty()) return;
  const Stager::Ticket ticket = options_.stager->enqueue(std::exchange(copies, {}));
  for (; first < loaded.items.size(); ++first) loaded.items[first].ticket = ticket;
}

Loader::Loaded Loader::load(std::span<const Piece> pieces) {
  Loaded loaded;
  const auto other = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return reaches(piece) != reaches(pieces.front()) ||
           piece.from.on_device != pieces.front().from.on_device;
  });
  pieces = pieces.first(static_cast<size_t>(other - pieces.begin()));
  loaded.way = way_of(pieces);
  if (loaded.way == Frame::Way::Inline) return load_inline(pieces);
  const bool copied = loaded.way == Frame::Way::Runs || loaded.way == Frame::Way::Window;
  std::vector<Stager::Piece> jobs;
  size_t first = 0, copied_bytes = 0;
  while (loaded.n < pieces.size()) {
    const size_t n = length_of_run(pieces.subspan(loaded.n), loaded.way);
    const auto run = pieces.subspan(loaded.n, n);
    Outbox::Item item;
    for (const Piece& piece : run) item.bytes += piece.bytes;
    if (!copied) {
      refer(item, run);
    } else if (!place(item, loaded.way)) {
      break;
    }
    std::byte* to = item.data;
    for (const Piece& piece : run) {
      if (copied) jobs.push_back({{to, piece.from.data, piece.bytes}, piece.from.on_device});
      to += piece.bytes;
    }
    loaded.n += n;
    loaded.bytes += item.bytes;
    copied_bytes += item.bytes;
    loaded.items.push_back(std::move(item));
    if (copied_bytes >= kJobBytes) {
      enqueue(loaded, jobs, first);
      copied_bytes = 0;
    }
  }
  enqueue(loaded, jobs, first);
  return loaded;
}

}  // namespace hetccl::onesided
