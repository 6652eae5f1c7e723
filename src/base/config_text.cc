#include "base/config_text.h"

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "base/log.h"

namespace hetccl {

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_level(std::string_view text) {
  return parse_log_level(text).has_value();
}

bool is_label(std::string_view text) {
  return text.size() <= 255 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

bool is_path(std::string_view text) {
  return text.find('\0') == std::string_view::npos;
}

// Rejects relative paths, which depend on the folder in which the program runs.
bool is_library(std::string_view text) {
  return is_path(text) && (text.starts_with('/') || text.find('/') == std::string_view::npos);
}

bool is_library_list(std::string_view text) {
  while (!text.empty()) {
    const size_t colon = std::min(text.find(':'), text.size());
    if (!is_library(text.substr(0, colon))) return false;
    text.remove_prefix(std::min(colon + 1, text.size()));
  }
  return true;
}

bool is_bits(std::string_view text) {
  return text == "any" || text == "keep";
}

bool is_tuning(std::string_view text) {
  return text == "off" || text == "online" || text == "step" || text == "frozen";
}

bool is_encoding(std::string_view text) {
  return parse_encoding(text).ok();
}

bool is_unique_id(std::string_view text) {
  return text.size() == 256 && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

bool is_runtime(std::string_view text) {
  return text == "cuda" || text == "hip";
}

bool is_family(std::string_view text) {
  return text == "inet" || text == "inet6";
}

bool is_port_range(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return false;
  const auto first = to_integer(text.substr(0, dash));
  const auto last = to_integer(text.substr(dash + 1));
  return first && last && *first >= 1 && *first <= *last && *last <= 65'535;
}

bool is_interface_list(std::string_view text) {
  return is_label(text) && text.find_first_not_of("^=,") != std::string_view::npos;
}

bool is_rate_list(std::string_view text) {
  return is_label(text) && text.find('=') != text.npos;
}

}  // namespace hetccl
