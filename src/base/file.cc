#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/fd.h"
#include "base/size_limit.h"

namespace hetccl {

namespace {

Status write_all(int fd, std::string_view text) {
  const SizeSignalBlocked blocked;
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return size_error("write", errno);
    text.remove_prefix(static_cast<size_t>(put));
  }
  return {};
}

Result<Fd> lock(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return system_error("open " + path, errno);
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error("lock " + path, errno);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return error(ErrorCode::SystemError, "another process holds %s", path.c_str());
}

}  // namespace

Status replace_file(const std::string& path, std::string_view text) {
  const std::string context = "writing " + path;
  std::string unfinished = path + ".XXXXXX";
  const Fd file(mkostemp(unfinished.data(), O_CLOEXEC));  // O_EXCL follows no link; mode 0600
  if (!file.valid()) return system_error(context, errno);
  Status status = write_all(file.get(), text);
  if (status.ok() && std::rename(unfinished.c_str(), path.c_str()) != 0)
    status = system_error("rename", errno);
  if (!status.ok()) ::unlink(unfinished.c_str());
  return status.with(context);
}

Result<std::string> read_file(const std::string& path, size_t most_bytes) {
  const std::string context = "reading " + path;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() && errno == ENOENT) return std::string();
  if (!file.valid()) return system_error(context, errno);
  struct stat about = {};
  if (::fstat(file.get(), &about) != 0) return system_error(context, errno);
  if (!S_ISREG(about.st_mode)) return error(ErrorCode::SystemError, "%s is no file", path.c_str());
  std::string text;
  char piece[16'384];
  for (;;) {
    const ssize_t got = ::read(file.get(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(context, errno);
    if (got == 0) return text;
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > most_bytes)
      return error(ErrorCode::SystemError, "%s has more than %zu bytes", path.c_str(), most_bytes);
  }
}

Status update_file(const std::string& path, size_t most_bytes,
                   const std::function<Result<std::string>(std::string_view text)>& change) {
  const std::string folder = std::filesystem::path(path).parent_path();
  std::error_code failed;
  if (!folder.empty() && !std::filesystem::exists(folder, failed)) {
    std::filesystem::create_directories(folder, failed);
    if (!failed) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, failed);
    if (failed)
      return error(ErrorCode::SystemError, "making %s: %s", folder.c_str(),
                   failed.message().c_str());
  }
  HETCCL_ASSIGN(const Fd held, lock(path + ".lock"));
  HETCCL_ASSIGN(const std::string text, read_file(path, most_bytes));
  HETCCL_ASSIGN(const std::string changed, change(text));
  return replace_file(path, changed);
}

}  // namespace hetccl
