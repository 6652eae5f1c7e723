// Compiled kernels on disk. A file is used only if this user owns it, it was made for the same key,
// and it is complete.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/kernels/kernels.h"

namespace hetccl::device::kernels {

/// Returns SHA-256 in hexadecimal.
[[nodiscard]] std::string digest_of(std::string_view text);

class Cache {
 public:
  /// Uses `folder`, which is created at the first write; "" disables the cache.
  explicit Cache(std::string folder) : folder_(std::move(folder)) {}

  /// Returns the images under `key`, or the reason why there are none.
  [[nodiscard]] Result<Images> read(const std::string& key) const;
  /// Replaces the file atomically for readers. After an error the old file remains.
  [[nodiscard]] Status write(const std::string& key, const Images& images) const;
  /// Returns the file of `key`.
  [[nodiscard]] std::string path_of(const std::string& key) const;

 private:
  std::string folder_;
};

}  // namespace hetccl::device::kernels
