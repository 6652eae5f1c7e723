// Files that hetccl writes about itself (dumps, traces), at paths that the user gives as patterns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace hetccl {

/// What a pattern's fields stand for.
struct ReportName {
  int rank = 0;         ///< %r
  uint64_t number = 0;  ///< %c: of the communicator in its process, from 0
};

/// Whether every '%' in `pattern` begins %r, %p (the process id), %c or %%.
[[nodiscard]] bool is_report_pattern(std::string_view pattern);
/// The path that `pattern` gives.
[[nodiscard]] std::string report_path(std::string_view pattern, const ReportName& name);
/// Writes the file, of mode 0600, in one step (`replace_file`): a later report of the same name
/// replaces an earlier one. SystemError names the path; a link, a FIFO, a device or a folder at
/// `path` is refused and stays.
Status write_report(const std::string& path, std::string_view text);

/// Microseconds since the Unix epoch at steady time `when`, by one look at both clocks.
class WallClock {
 public:
  WallClock();
  [[nodiscard]] double microseconds(TimePoint when) const;

 private:
  int64_t offset_ns_;
};

}  // namespace hetccl
