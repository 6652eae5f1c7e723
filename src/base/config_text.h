// Checks of settings' texts, for the table in config.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hetccl {

/// Returns the number that the whole text is, if it is one.
std::optional<int64_t> to_integer(std::string_view text);

// Return whether a setting may have that text; the table says what each takes.
bool is_level(std::string_view text);
bool is_label(std::string_view text);
bool is_path(std::string_view text);
bool is_library(std::string_view text);
bool is_library_list(std::string_view text);
bool is_bits(std::string_view text);
bool is_tuning(std::string_view text);
bool is_encoding(std::string_view text);
bool is_unique_id(std::string_view text);
bool is_runtime(std::string_view text);
bool is_family(std::string_view text);
bool is_port_range(std::string_view text);
bool is_interface_list(std::string_view text);
bool is_rate_list(std::string_view text);

}  // namespace hetccl
