// Decides which interfaces or devices of a host a setting admits.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace hetccl::net {

/// A list in NCCL's syntax: prefixes with commas; "=" makes them exact names, "^" excludes them
/// ("^=" both). Empty: all.
class NameFilter {
 public:
  explicit NameFilter(std::string_view text) {
    excludes_ = text.starts_with('^');
    text.remove_prefix(excludes_ ? 1 : 0);
    exact_ = text.starts_with('=');
    text.remove_prefix(exact_ ? 1 : 0);
    while (!text.empty()) {
      const size_t end = std::min(text.find(','), text.size());
      if (end > 0) names_.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  /// Returns whether the user named what to use; then its kind does not matter.
  [[nodiscard]] bool selects_by_name() const { return !excludes_ && !names_.empty(); }
  [[nodiscard]] bool allows(std::string_view name) const {
    if (names_.empty()) return true;
    const bool listed = std::any_of(names_.begin(), names_.end(), [&](const std::string& entry) {
      return exact_ ? name == entry : name.starts_with(entry);
    });
    return listed != excludes_;
  }

 private:
  bool excludes_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

}  // namespace hetccl::net
