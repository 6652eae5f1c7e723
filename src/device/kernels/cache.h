// Compiled kernels on disk. What a file holds is used only where it is this user's own, was made
// for the same key and is whole.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/kernels/kernels.h"

namespace hetccl::device::kernels {

/// SHA-256 in hexadecimal.
[[nodiscard]] std::string digest_of(std::string_view text);

class Cache {
 public:
  /// In `folder`, which is made when it is first written to; "" caches nothing.
  explicit Cache(std::string folder) : folder_(std::move(folder)) {}

  /// The images under `key`, or the reason why there are none.
  [[nodiscard]] Result<Images> read(const std::string& key) const;
  /// Replaces what is there, in one step for readers. An error leaves it as it was.
  [[nodiscard]] Status write(const std::string& key, const Images& images) const;
  /// The file of `key`.
  [[nodiscard]] std::string path_of(const std::string& key) const;

 private:
  std::string folder_;
};

}  // namespace hetccl::device::kernels
