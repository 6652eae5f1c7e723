#include "net/secret_file.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace hetccl::net {

namespace {

// HKDF (RFC 5869) in its two steps: extract with this salt, expand with one block's label.
constexpr std::string_view kSalt = "hetccl secret file, version 1   ";
static_assert(kSalt.size() == kSecretBytes);
constexpr std::string_view kKeyLabel = "hetccl job key";
constexpr std::string_view kTagLabel = "hetccl file tag";

Mac expand(const Secret& key, std::string_view label, const Secret& context) {
  Secret info(label.begin(), label.end());
  info.insert(info.end(), context.begin(), context.end());
  info.push_back(1);
  return authenticate(key, info.data(), info.size());
}

Status refuse(const std::string& path, const std::string& why) {
  return error(ErrorCode::InvalidArgument, "HETCCL_SECRET_FILE=%s: %s", path.c_str(), why.c_str());
}

Status check_file(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return refuse(path, "it is no regular file");
  if ((info.st_mode & 077U) != 0)
    return refuse(path, format("its mode %04o lets others than its owner use it: chmod 600 it",
                               info.st_mode & 07777U));
  if (info.st_size > static_cast<off_t>(kMaxSecretFileBytes))
    return refuse(path, format("it is longer than %zu bytes", kMaxSecretFileBytes));
  return {};
}

}  // namespace

Result<Secret> read_secret_file(const std::string& path) {
  // O_NONBLOCK: a FIFO of that name would block the process.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return refuse(path, std::strerror(errno));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return refuse(path, std::strerror(errno));
  HETCCL_TRY(check_file(path, info));
  Secret content(kMaxSecretFileBytes + 1);
  size_t bytes = 0;
  for (ssize_t got = 1; got > 0 && bytes < content.size(); bytes += static_cast<size_t>(got)) {
    got = ::read(fd.get(), content.data() + bytes, content.size() - bytes);
    if (got < 0) return refuse(path, std::strerror(errno));
  }
  while (bytes > 0 && (content[bytes - 1] == '\n' || content[bytes - 1] == '\r')) --bytes;
  const bool fits = bytes >= kMinSecretFileBytes && bytes <= kMaxSecretFileBytes;
  const Mac digest = authenticate(Secret(kSalt.begin(), kSalt.end()), content.data(), bytes);
  sodium_memzero(content.data(), content.size());
  if (!fits)
    return refuse(path, format("it must hold %zu to %zu bytes, for example those of: openssl rand "
                               "-base64 32",
                               kMinSecretFileBytes, kMaxSecretFileBytes));
  return Secret(digest.begin(), digest.end());
}

Key job_key(const Secret& id_secret, const Secret& file_secret) {
  if (file_secret.empty()) return {id_secret, 0};
  const Mac key = expand(file_secret, kKeyLabel, id_secret);
  const Mac tag = expand(file_secret, kTagLabel, id_secret);
  Key mixed{Secret(key.begin(), key.end()), 0};
  std::memcpy(&mixed.file_tag, tag.data(), sizeof mixed.file_tag);
  mixed.file_tag |= 1;  // 0 means none
  return mixed;
}

}  // namespace hetccl::net
