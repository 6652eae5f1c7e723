// Reads and writes files in folders that other users may write to. Whoever puts a link, a FIFO or
// another file at such a path gains nothing by it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hetccl {

/// Writes `text` to a new file of mode 0600 in the folder of `path` and renames it to `path`:
/// atomic for readers, and follows no link. Replaces anything at `path`. SystemError names the
/// path; then nothing has changed.
Status replace_file(const std::string& path, std::string_view text);

/// Returns the file's text, "" if there is no file. SystemError names the path, also if the file is
/// longer than `most_bytes`, or not a regular file.
Result<std::string> read_file(const std::string& path, size_t most_bytes);

/// Replaces the file by the result of `change` on its text, while no other process does (by a lock
/// on `path`.lock; returns SystemError after a second's wait). Creates a missing folder with mode
/// 0700. An error of `change` leaves the file as it was.
Status update_file(const std::string& path, size_t most_bytes,
                   const std::function<Result<std::string>(std::string_view text)>& change);

}  // namespace hetccl
