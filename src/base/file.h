// Files at paths that others may know: whoever can write to their folder gains nothing from a link,
// a FIFO or a file that waits there.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hetccl {

/// Writes `text` to a new file of mode 0600 in the folder of `path` and renames it to `path`: in
/// one step for readers, and through no link. What was at `path` is replaced, whatever it was.
/// SystemError names the path; then nothing has changed.
Status replace_file(const std::string& path, std::string_view text);

/// The file's text, "" where there is none. SystemError names the path, also where it is longer
/// than `most_bytes`, or no regular file.
Result<std::string> read_file(const std::string& path, size_t most_bytes);

/// Replaces the file by what `change` makes of its text, while no other process does (a lock on
/// `path`.lock, waited for at most a second: then SystemError). Makes the folder, of mode 0700,
/// where it is missing. An error of `change` leaves the file as it was.
Status update_file(const std::string& path, size_t most_bytes,
                   const std::function<Result<std::string>(std::string_view text)>& change);

}  // namespace hetccl
