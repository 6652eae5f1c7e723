// HETCCL_SECRET_FILE: a secret that does not travel with the unique id. It is mixed into every key,
// so whoever learns an id alone can neither join nor read.
#pragma once

#include <string>

#include "net/auth.h"

namespace hetccl::net {

inline constexpr size_t kMinSecretFileBytes = 16;
inline constexpr size_t kMaxSecretFileBytes = 64 << 10;

/// The file's secret: a digest of its bytes, without newlines at its end (editors add them).
/// InvalidArgument with the remedy where it is missing, no regular file, readable by others than
/// its owner, too short or too long.
Result<Secret> read_secret_file(const std::string& path);

/// The key of a job: the unique id's secret, with the file's mixed in where that is not empty.
Key job_key(const Secret& id_secret, const Secret& file_secret);

}  // namespace hetccl::net
