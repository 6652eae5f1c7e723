#include "exec/window.h"

#include <new>

namespace hetccl::exec {
namespace {

constexpr size_t kHead = 4096;     // of a window: how much of each ring has been read, who gave up
constexpr size_t kWordBytes = 64;  // apart, since each end writes one of them

std::span<std::byte> ring_of(std::span<std::byte> memory, bool first) {
  constexpr size_t kGrain = WindowRing::kGrain;
  const size_t bytes = (memory.size() - kHead) / 2 / kGrain * kGrain;
  return memory.subspan(kHead + (first ? 0 : bytes), bytes);
}

}  // namespace

size_t WindowRing::room(size_t bytes) {
  return (bytes + kGrain - 1) / kGrain * kGrain;
}

WindowRing::Place WindowRing::place(size_t bytes) {
  const uint64_t room = memory_.size();
  const uint64_t length = WindowRing::room(bytes);
  uint64_t begin = end_;
  // A message lies in one piece.
  if (begin % room + length > room) begin += room - begin % room;
  end_ = begin + length;
  while (!messages_.empty() && messages_.front().begin + room < end_) {
    needed_ = messages_.front().number;
    messages_.pop();
  }
  const uint32_t number = number_.load(std::memory_order_relaxed) + 1;
  number_.store(number, std::memory_order_relaxed);
  if (length > 0) messages_.push({number, begin});
  return {memory_.data() + begin % room, needed_};
}

Window::Window(device::Device& device, std::span<std::byte> memory, bool lower)
    : out(ring_of(memory, lower)),
      in(ring_of(memory, !lower)),
      device_(device),
      memory_(memory),
      lower_(lower),
      flag_memory_(device, Arena::Kind::Pinned) {}

Result<std::unique_ptr<Window>> Window::open(device::Device& device, std::span<std::byte> memory,
                                             bool lower) {
  std::unique_ptr<Window> window(new Window(device, memory, lower));
  HETCCL_TRY(window->flag_memory_.reserve(sizeof(device::Flag)));
  new (window->flag()) device::Flag();
  HETCCL_TRY(device.pin(memory.data(), memory.size()));
  window->pinned_ = true;
  return window;
}

Window::~Window() {
  if (pinned_) device_.unpin(memory_.data());
}

Window::Word& Window::word(size_t index) const {
  static_assert(Word::is_always_lock_free && sizeof(Word) == 4);
  return *reinterpret_cast<Word*>(memory_.data() + index * kWordBytes);
}

bool Window::exchange() {
  Word& ours = word(lower_ ? 0 : 1);    // of `out`: the other end writes it
  Word& theirs = word(lower_ ? 1 : 0);  // of `in`
  bool moved = false;
  if (theirs.load(std::memory_order_relaxed) != read_here_) {
    theirs.store(read_here_, std::memory_order_release);
    moved = true;
  }
  const uint32_t there = ours.load(std::memory_order_acquire);
  const uint32_t known = read_there().word.load(std::memory_order_relaxed);
  // Whatever the other process writes: it has read no more than there is.
  if (there != known && there - known <= out.number() - known) {
    read_there().word.store(there, std::memory_order_release);
    moved = true;
  }
  return moved;
}

bool Window::abandoned() const {
  return word(lower_ ? 3 : 2).load(std::memory_order_acquire) != 0;
}

void Window::abandon() {
  word(lower_ ? 2 : 3).store(1, std::memory_order_seq_cst);
}

void Window::release_waits() {
  auto& word = read_there().word;
  word.store(word.load(std::memory_order_relaxed) + device::kFlagAborted,
             std::memory_order_release);
}

}  // namespace hetccl::exec
