#include "device/kernels/cache.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/fd.h"
#include "base/file.h"

namespace hetccl::device::kernels {
namespace {

// A file holds this line, the key, every image with its length before it, and a digest of all that.
constexpr std::string_view kMagic = "hetccl kernels 2\n";
constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr size_t kDigestBytes = size_t{2} * crypto_hash_sha256_BYTES;

void append(std::string& file, std::string_view field) {
  const uint64_t bytes = field.size();
  file.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(field);
}

std::optional<std::string_view> take(std::string_view& rest) {
  uint64_t bytes = 0;
  if (rest.size() < sizeof bytes) return std::nullopt;
  std::memcpy(&bytes, rest.data(), sizeof bytes);
  rest.remove_prefix(sizeof bytes);
  if (bytes > rest.size()) return std::nullopt;
  const std::string_view field = rest.substr(0, bytes);
  rest.remove_prefix(bytes);
  return field;
}

Result<std::string> contents_of(const std::string& path) {
  // O_NONBLOCK: a FIFO of that name would block the process.
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return system_error(path, errno);
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return system_error(path, errno);
  if (!S_ISREG(info.st_mode))
    return error(ErrorCode::SystemError, "%s is no regular file", path.c_str());
  const bool own = info.st_uid == geteuid() && (info.st_mode & 022) == 0;
  if (!own) {
    return error(ErrorCode::SystemError, "%s: others than its user could have written it",
                 path.c_str());
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes > kMaxFileBytes) return error(ErrorCode::SystemError, "%s is too large", path.c_str());
  std::string text(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(file.get(), text.data() + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return error(ErrorCode::SystemError, "%s is cut off", path.c_str());
    done += static_cast<size_t>(got);
  }
  return text;
}

}  // namespace

std::string digest_of(std::string_view text) {
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::string hex;
  for (const unsigned char byte : digest) hex += format("%02x", byte);
  return hex;
}

std::string Cache::path_of(const std::string& key) const {
  return folder_ + "/kernels-" + digest_of(key).substr(0, 24);
}

Result<Images> Cache::read(const std::string& key) const {
  if (folder_.empty())
    return error(ErrorCode::SystemError, "there is no folder for compiled kernels");
  const std::string path = path_of(key);
  HETCCL_ASSIGN(const std::string text, contents_of(path));
  const auto refuse = [&](const char* why) {
    return error(ErrorCode::SystemError, "%s: %s", path.c_str(), why);
  };
  std::string_view rest(text);
  if (!rest.starts_with(kMagic) || rest.size() < kMagic.size() + kDigestBytes)
    return refuse("not of this version");
  const std::string_view digest = rest.substr(rest.size() - kDigestBytes);
  rest.remove_suffix(kDigestBytes);
  if (digest_of(rest) != digest) return refuse("damaged");
  rest.remove_prefix(kMagic.size());
  const auto found = take(rest);
  if (!found || *found != key) return refuse("made for something else");
  Images images;
  while (!rest.empty()) {
    const auto image = take(rest);
    if (!image) return refuse("malformed");
    images.emplace_back(*image);
  }
  return images;
}

Status Cache::write(const std::string& key, const Images& images) const {
  if (folder_.empty()) return {};
  std::string text(kMagic);
  append(text, key);
  for (const auto& image : images) append(text, image);
  text += digest_of(text);
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure)
    return error(ErrorCode::SystemError, "%s: %s", folder_.c_str(), failure.message().c_str());
  return replace_file(path_of(key), text);
}

}  // namespace hetccl::device::kernels
