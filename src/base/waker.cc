#include "base/waker.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hetccl {

namespace {

// A full pipe means that the sleeper was already rung, so EAGAIN is success.
void write_byte(int fd) {
  const char byte = 1;
  while (write(fd, &byte, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace

Result<std::unique_ptr<Waker>> Waker::create() {
  int fds[2];
  if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) != 0)
    return system_error("cannot make the pipe that wakes the progress engine", errno);
  return std::unique_ptr<Waker>(new Waker(fds[0], fds[1]));
}

Waker::~Waker() {
  close(read_fd_);
  close(write_fd_);
}

void Waker::ring() {
  write_byte(write_fd_);
}

void Waker::drain() {
  char bytes[512];
  for (;;) {
    const ssize_t got = read(read_fd_, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < static_cast<ssize_t>(sizeof bytes)) return;
  }
}

WakerAddress Waker::address() const {
  return {getpid(), write_fd_};
}

Result<RemoteWaker> RemoteWaker::open(WakerAddress address) {
  const std::string path = format("/proc/%d/fd/%d", address.pid, address.fd);
  // Open it for reading, too: a pipe with a reader never raises SIGPIPE when its owner is gone.
  const int fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return system_error("cannot open the waker of process " + path, errno);
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) {
    close(fd);
    return error(ErrorCode::SystemError,
                 "%s is not a waker's pipe: its process is gone or restarted", path.c_str());
  }
  RemoteWaker waker;
  waker.fd_ = fd;
  return waker;
}

RemoteWaker::RemoteWaker(RemoteWaker&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RemoteWaker& RemoteWaker::operator=(RemoteWaker&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

RemoteWaker::~RemoteWaker() {
  if (fd_ >= 0) close(fd_);
}

void RemoteWaker::ring() const {
  if (fd_ >= 0) write_byte(fd_);
}

}  // namespace hetccl
