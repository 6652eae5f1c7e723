// Files at paths that others may know: whoever can write to their folder gains nothing from a link,
// a FIFO or a file that waits there.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hetccl {

/// Writes `text` to a new file of mode 0600 in the folder of `path` and renames it to `path`: in
/// one step for readers, and through no link. What was at `path` is replaced, whatever it was.
/// SystemError names the path; then nothing has changed.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace hetccl
