#include "onesided/loader.h"

#include <algorithm>
#include <utility>

namespace hetccl::onesided {

namespace {

// Pieces that are shorter on average are copied together, if that pays.
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
  const bool copied = !pieces.front().from.is_reached(options_.reaches_device);
  if (options_.window != nullptr && (copied || bytes >= kLeastInWindow)) return Frame::Way::Window;
  if (copied) return Frame::Way::Runs;
  const bool runs = options_.packs_short && pieces.size() > 1 && bytes / pieces.size() < kShort;
  return runs ? Frame::Way::Runs : Frame::Way::OneByOne;
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
  const uint64_t ticket = options_.stager->enqueue(std::exchange(copies, {}));
  for (; first < loaded.items.size(); ++first) loaded.items[first].ticket = ticket;
}

Loader::Loaded Loader::load(std::span<const Piece> pieces) {
  Loaded loaded;
  const auto reached = [&](const Piece& piece) {
    return piece.from.is_reached(options_.reaches_device);
  };
  const auto other = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return reached(piece) != reached(pieces.front());
  });
  pieces = pieces.first(static_cast<size_t>(other - pieces.begin()));
  loaded.way = way_of(pieces);
  const bool packed = loaded.way != Frame::Way::OneByOne;
  std::vector<Stager::Piece> copies;
  size_t first = 0, copied_bytes = 0;
  while (loaded.n < pieces.size()) {
    const size_t n =
        packed ? length_of_run(pieces, loaded.n, [](const Piece& piece) { return piece.bytes; })
               : 1;
    const auto run = pieces.subspan(loaded.n, n);
    Outbox::Item item;
    for (const Piece& piece : run) item.bytes += piece.bytes;
    if (!packed) {
      item.data = run[0].from.data;
      item.registered = run[0].from.registered;
    } else if (!place(item, loaded.way)) {
      break;
    }
    std::byte* to = item.data;
    for (const Piece& piece : run) {
      if (packed) copies.push_back({{to, piece.from.data, piece.bytes}, piece.from.on_device});
      to += piece.bytes;
    }
    loaded.n += n;
    loaded.bytes += item.bytes;
    copied_bytes += item.bytes;
    loaded.items.push_back(std::move(item));
    if (copied_bytes >= kJobBytes) {
      enqueue(loaded, copies, first);
      copied_bytes = 0;
    }
  }
  enqueue(loaded, copies, first);
  return loaded;
}

}  // namespace hetccl::onesided
