// Files that hetccl writes about itself (dumps, traces), at paths that the user gives as patterns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace hetccl {

/// The values of a pattern's fields.
struct ReportName {
  int rank = 0;         ///< %r
  uint64_t number = 0;  ///< %c: the communicator's number in its process, from 0
};

/// Returns whether every '%' in `pattern` begins %r, %p (the process id), %c or %%.
[[nodiscard]] bool is_report_pattern(std::string_view pattern);
/// Returns the path for `pattern`.
[[nodiscard]] std::string report_path(std::string_view pattern, const ReportName& name);
/// Writes the file with mode 0600 atomically (`replace_file`). A later report of the same name
/// replaces an earlier one. SystemError names the path; a link, a FIFO, a device or a folder at
/// `path` is refused and stays.
Status write_report(const std::string& path, std::string_view text);

/// Converts steady time `when` to microseconds since the Unix epoch, by reading both clocks once.
class WallClock {
 public:
  WallClock();
  [[nodiscard]] double microseconds(TimePoint when) const;

 private:
  int64_t offset_ns_;
};

}  // namespace hetccl
