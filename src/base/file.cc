#include "base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/fd.h"

namespace hetccl {

namespace {

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error("write", errno);
    text.remove_prefix(static_cast<size_t>(put));
  }
  return {};
}

}  // namespace

Status replace_file(const std::string& path, std::string_view text) {
  const std::string context = "writing " + path;
  std::string unfinished = path + ".XXXXXX";
  const Fd file(mkostemp(unfinished.data(), O_CLOEXEC));  // O_EXCL, which follows no link, and 0600
  if (!file.valid()) return system_error(context, errno);
  Status status = write_all(file.get(), text);
  if (status.ok() && std::rename(unfinished.c_str(), path.c_str()) != 0)
    status = system_error("rename", errno);
  if (!status.ok()) ::unlink(unfinished.c_str());
  return status.with(context);
}

}  // namespace hetccl
