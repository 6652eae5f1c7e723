// Joins texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hetccl {

/// Returns "one; two", to report several causes in one error.
[[nodiscard]] inline std::string joined(const std::vector<std::string>& parts,
                                        std::string_view separator = "; ") {
  std::string text;
  for (const std::string& part : parts)
    text.append(text.empty() ? std::string_view() : separator).append(part);
  return text;
}

}  // namespace hetccl
