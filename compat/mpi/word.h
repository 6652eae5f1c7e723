// The arguments of an MPI function, for any MPI. Each is an integer, a pointer, or a handle, which
// is one of the two. On the machines that hetccl supports (Linux on x86-64 and AArch64) each
// travels in a 64-bit register or stack slot, and the callee reads as many bits as its type has. So
// one library can stand in front of every MPI: it takes words, reads those that it understands, and
// passes all on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace hetccl::mpi {

using Word = std::uintptr_t;

/// Reads a C int from a word, whose upper half is undefined.
constexpr int to_int(Word word) {
  return static_cast<int>(static_cast<uint32_t>(word));
}
constexpr Word from_int(int64_t value) {
  return static_cast<Word>(value);
}
template <typename T>
T* to_pointer(Word word) {
  return reinterpret_cast<T*>(word);
}
inline Word from_pointer(const void* pointer) {
  return reinterpret_cast<Word>(pointer);
}

/// A call's arguments, at most kMost. Words from `size` on stay uninitialised: clearing them would
/// cost more than the rest of this library's work on a short call.
struct Words {
  static constexpr size_t kMost = 12;
  std::array<Word, kMost> word;
  size_t size = 0;

  Words() {}  // NOLINT(cppcoreguidelines-pro-type-member-init,modernize-use-equals-default)
  template <typename... Args>
  explicit Words(Word first, Args... rest) {  // NOLINT(cppcoreguidelines-pro-type-member-init)
    push(first);
    (push(static_cast<Word>(rest)), ...);
  }
  void push(Word value) { word[size++] = value; }
  void insert(size_t place, Word value) {
    for (size_t i = size++; i > place; --i) word[i] = word[i - 1];
    word[place] = value;
  }
};

namespace detail {
template <size_t... I>
int invoke(void* function, const Words& words, std::index_sequence<I...>) {
  using Function = int (*)(decltype(static_cast<void>(I), Word{})...);
  return reinterpret_cast<Function>(function)(words.word[I]...);
}
template <size_t... Sizes>
int invoke_any(void* function, const Words& words, std::index_sequence<Sizes...>) {
  int result = 0;
  static_cast<void>(
      ((words.size == Sizes &&
        (result = invoke(function, words, std::make_index_sequence<Sizes>()), true)) ||
       ...));
  return result;
}
}  // namespace detail

/// Calls an MPI function with these arguments.
inline int invoke(void* function, const Words& words) {
  return detail::invoke_any(function, words, std::make_index_sequence<Words::kMost + 1>());
}

}  // namespace hetccl::mpi
