// Pieces on their way to an outbox. Where the channel does not reach them, or they are short, they
// are copied together first, in runs: a message each.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "exec/window.h"
#include "onesided/outbox.h"
#include "onesided/region.h"
#include "onesided/staging.h"

namespace hetccl::onesided {

/// A run is one piece, or several of so many bytes together.
inline constexpr size_t kRunBytes = size_t{1} << 20;

/// How many of the first pieces, of these lengths, form a run: both ends find the same.
template <typename Pieces, typename BytesOf>
size_t length_of_run(const Pieces& pieces, size_t begin, const BytesOf& bytes_of) {
  size_t n = 1, bytes = bytes_of(pieces[begin]);
  while (begin + n < pieces.size() && bytes + bytes_of(pieces[begin + n]) <= kRunBytes)
    bytes += bytes_of(pieces[begin + n++]);
  return n;
}

/// By whoever holds the link's lock.
class Loader {
 public:
  struct Options {
    exec::Window* window = nullptr;   ///< which the peer shares, too; or null
    bool reaches_device = false;      ///< the channel does, where memory is registered
    bool packs_short = false;         ///< a message costs more than copying a short piece
    Stager* stager = nullptr;         ///< copies
    std::shared_ptr<ChunkPool> pool;  ///< to that memory, where there is no window
  };
  explicit Loader(Options options) : options_(std::move(options)), staging_(options_.pool) {}

  struct Piece {
    Place from;
    size_t bytes = 0;
  };
  struct Loaded {
    size_t n = 0;  ///< pieces, of the first
    size_t bytes = 0;
    Frame::Way way{};
    std::vector<Outbox::Item> items;
  };
  /// Loads as many pieces as there is room for, all in one way.
  Loaded load(std::span<const Piece> pieces);
  /// Nothing of it is on its way.
  void rest() { staging_.rest(); }

 private:
  [[nodiscard]] Frame::Way way_of(std::span<const Piece> pieces) const;
  bool place(Outbox::Item& item, Frame::Way way);
  void enqueue(Loaded& loaded, std::vector<Stager::Piece>& copies, size_t& first);

  const Options options_;
  Staging staging_;
};

}  // namespace hetccl::onesided
