#include "exec/window.h"

#include <new>

namespace hetccl::exec {
namespace {

constexpr size_t kWordBytes = 64;  // apart, since each end writes one of them

}  // namespace

Window::Window(device::Device& device, std::span<std::byte> memory, bool is_lower)
    : out(lower::Ring::bytes_of_window(memory.size())),
      in(lower::Ring::bytes_of_window(memory.size())),
      device_(device),
      memory_(memory),
      lower_(is_lower),
      flag_memory_(device, Arena::Kind::Pinned) {}

Result<std::unique_ptr<Window>> Window::open(device::Device& device, std::span<std::byte> memory,
                                             bool is_lower) {
  std::unique_ptr<Window> window(new Window(device, memory, is_lower));
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
  Word& ours = word(lower_ ? 0 : 1);    // of `out`; the other end writes it
  Word& theirs = word(lower_ ? 1 : 0);  // of `in`
  bool moved = false;
  if (theirs.load(std::memory_order_relaxed) != read_here_) {
    theirs.store(read_here_, std::memory_order_release);
    moved = true;
  }
  const uint32_t there = ours.load(std::memory_order_acquire);
  const uint32_t known = read_there().word.load(std::memory_order_relaxed);
  // Accept only a count within the messages sent, whatever the other process writes.
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
