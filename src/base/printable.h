// Makes text from elsewhere safe for a log and a terminal. Code that reads text from a peer or a
// file passes it through here before it enters an error.
#pragma once

#include <string>
#include <string_view>

namespace hetccl {

/// Returns `text` with everything escaped that a terminal or log reader would act on: control
/// characters ("\n", "\x1b", "\u0085"), marks that reorder text ("\u202e"), and bytes that are no
/// UTF-8 ("\xff"). Other UTF-8 stays. At most `most` bytes, cut between characters.
[[nodiscard]] std::string printable(std::string_view text, size_t most);
/// Writes the same into `out`, which has room for `room` bytes. Returns the bytes written.
/// Allocates nothing.
size_t print_into(char* out, size_t room, std::string_view text);

}  // namespace hetccl
