#include "base/report_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace hetccl {

bool is_report_pattern(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') continue;
    if (++i == pattern.size() || std::string_view("rpc%").find(pattern[i]) == pattern.npos) {
      return false;
    }
  }
  return true;
}

std::string report_path(std::string_view pattern, const ReportName& name) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    const char field = pattern[++i];
    if (field == 'r') path += std::to_string(name.rank);
    if (field == 'p') path += std::to_string(getpid());
    if (field == 'c') path += std::to_string(name.number);
    if (field == '%') path += '%';
  }
  return path;
}

Status write_report(const std::string& path, std::string_view text) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return error(ErrorCode::SystemError,
                 "writing %s: it is no regular file, and hetccl replaces no link, folder, FIFO or "
                 "device: give another path",
                 path.c_str());
  }
  return replace_file(path, text);
}

WallClock::WallClock() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto steady = steady_clock().now().time_since_epoch();
  offset_ns_ = std::chrono::nanoseconds(wall).count() - steady.count();
}

double WallClock::microseconds(TimePoint when) const {
  return static_cast<double>(when.time_since_epoch().count() + offset_ns_) / 1000;
}

}  // namespace hetccl
