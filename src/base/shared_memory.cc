#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "base/size_limit.h"

namespace hetccl {

namespace {

// The token has its own page before the data, so that the data begin page-aligned and zeroed.
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kMaxBytes = size_t{1} << 40;
// Seals the size: shrinking the segment would cause SIGBUS in its readers.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Result<std::byte*> map(int fd, size_t bytes) {
  void* memory =
      mmap(nullptr, kHeaderBytes + bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED)
    return system_error(format("cannot map %zu bytes of shared memory", bytes), errno);
  return static_cast<std::byte*>(memory);
}

Status allocate(int fd, size_t bytes) {
  const SizeSignalBlocked blocked;
  int failure = EINTR;
  while (failure == EINTR)
    failure = posix_fallocate(fd, 0, static_cast<off_t>(kHeaderBytes + bytes));
  if (failure == 0) return {};
  return size_error(
      format("cannot allocate %zu bytes of shared memory; free memory or raise its limit", bytes),
      failure);
}

}  // namespace

Result<SharedMemory> SharedMemory::create(size_t bytes) {
  if (bytes == 0 || bytes > kMaxBytes)
    return error(ErrorCode::InvalidArgument, "cannot share %zu bytes of memory", bytes);
  Fd fd(memfd_create("hetccl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return system_error("memfd_create for shared memory", errno);
  HETCCL_TRY(allocate(fd.get(), bytes));
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return system_error("cannot seal the size of shared memory", errno);

  SharedMemoryAddress address;
  if (getrandom(address.token, sizeof address.token, 0) != sizeof address.token)
    return system_error("getrandom for the token of shared memory", errno);
  HETCCL_ASSIGN(std::byte * base, map(fd.get(), bytes));
  std::memcpy(base, address.token, sizeof address.token);
  address.pid = getpid();
  address.fd = fd.release();
  address.bytes = bytes;

  SharedMemory memory;
  memory.data_ = base + kHeaderBytes;
  memory.bytes_ = bytes;
  memory.address_ = address;
  return memory;
}

Result<SharedMemory> SharedMemory::attach(const SharedMemoryAddress& address) {
  if (address.bytes == 0 || address.bytes > kMaxBytes)
    return error(ErrorCode::InvalidArgument, "a shared memory address of %llu bytes is not valid",
                 static_cast<unsigned long long>(address.bytes));
  const std::string path = format("/proc/%d/fd/%d", address.pid, address.fd);
  Fd fd(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0)
    return system_error("cannot open shared memory " + path +
                            " (its process must live in this PID namespace under the same user)",
                        errno);
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return system_error("fstat of " + path, errno);
  const bool is_segment = S_ISREG(info.st_mode) &&
                          info.st_size == static_cast<off_t>(kHeaderBytes + address.bytes) &&
                          (fcntl(fd.get(), F_GET_SEALS) & kSeals) == kSeals;
  if (!is_segment)
    return error(ErrorCode::InvalidArgument,
                 "%s is not a shared memory segment of %llu bytes: process %d has closed it or is "
                 "another process now",
                 path.c_str(), static_cast<unsigned long long>(address.bytes), address.pid);
  HETCCL_ASSIGN(std::byte * base, map(fd.get(), address.bytes));
  SharedMemory memory;
  memory.data_ = base + kHeaderBytes;
  memory.bytes_ = address.bytes;
  if (std::memcmp(base, address.token, sizeof address.token) != 0)
    return error(ErrorCode::InvalidArgument, "%s is another segment: its token differs",
                 path.c_str());
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      address_(std::exchange(other.address_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(address_, other.address_);
  return *this;
}

SharedMemory::~SharedMemory() {
  close_descriptor();
  if (data_) munmap(data_ - kHeaderBytes, kHeaderBytes + bytes_);
}

void SharedMemory::close_descriptor() {
  if (address_.fd >= 0) close(std::exchange(address_.fd, -1));
}

}  // namespace hetccl
