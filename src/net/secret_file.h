// HETCCL_SECRET_FILE: a secret that is never sent with the unique id. It is mixed into every key,
// so an id alone neither lets anyone join nor read.
#pragma once

#include <string>

#include "net/auth.h"

namespace hetccl::net {

inline constexpr size_t kMinSecretFileBytes = 16;
inline constexpr size_t kMaxSecretFileBytes = 64 << 10;

/// Returns the file's secret: a digest of its bytes, without newlines at the end (editors add
/// them). Returns InvalidArgument with the remedy if it is missing, no regular file, readable by
/// others than its owner, too short or too long.
Result<Secret> read_secret_file(const std::string& path);

/// Returns the key of a job: the unique id's secret, with the file's mixed in unless that is empty.
Key job_key(const Secret& id_secret, const Secret& file_secret);

}  // namespace hetccl::net
