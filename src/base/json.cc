// Converts text to values and back.
#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace hetccl {
namespace {

using Library = nlohmann::json;
using Members = std::vector<Json::Member>;

// Drops all but the last of members with equal names. Sorts them, because a stranger may send so
// many that comparing each pair would take hours.
void drop_repeated(Members& members) {
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return members[a].name < members[b].name; });
  std::vector<bool> repeated(members.size());
  for (size_t i = 1; i < order.size(); ++i) {
    repeated[order[i - 1]] = members[order[i - 1]].name == members[order[i]].name;
  }
  size_t place = 0;
  std::erase_if(members, [&](const Json::Member&) { return repeated[place++]; });
}

// Builds a value from the events of the library's parser, which does not recurse.
class Builder final : public nlohmann::json_sax<Library> {
 public:
  [[nodiscard]] bool too_deep() const { return too_deep_; }
  /// Returns where the text stops being JSON.
  [[nodiscard]] size_t ends() const { return ends_; }
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& /*text*/) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Library::binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*size*/) override { return begin(); }
  bool start_array(size_t /*size*/) override { return begin(); }
  bool key(std::string& name) override {
    open_.back().members.push_back({std::move(name), {}});
    return true;
  }
  bool end_object() override {
    Members members = std::move(open_.back().members);
    open_.pop_back();
    drop_repeated(members);
    return add(std::move(members));
  }
  bool end_array() override {
    std::vector<Json> elements = std::move(open_.back().elements);
    open_.pop_back();
    return add(std::move(elements));
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const Library::exception& /*error*/) override {
    ends_ = position;
    return false;
  }

 private:
  // An array or object whose end has not come yet.
  struct Open {
    std::vector<Json> elements;
    Members members;
  };

  bool begin() {
    too_deep_ = open_.size() == Json::kMaxDepth;
    if (!too_deep_) open_.emplace_back();
    return !too_deep_;
  }
  bool add(Json value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (!open_.back().members.empty())
      open_.back().members.back().value = std::move(value);
    else
      open_.back().elements.push_back(std::move(value));
    return true;
  }

  std::vector<Open> open_;
  Json root_;
  bool too_deep_ = false;
  size_t ends_ = 0;
};

std::string by_library(const Library& value) {
  return value.dump(-1, ' ', false, Library::error_handler_t::replace);
}

void write_text(std::string& out, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (plain)
    out.append("\"").append(text).append("\"");
  else
    out += by_library(text);
}

void begin_line(std::string& out, int indent, int level) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(level), ' ');
}

}  // namespace

Result<Json> Json::parse(std::string_view text, const char* what, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return error(ErrorCode::InvalidArgument, "%s of %zu bytes: at most %zu are allowed", what,
                 text.size(), max_bytes);
  }
  Builder builder;
  const bool ends_early = text.find('\0') != text.npos;  // the library takes it for the end
  if (!ends_early && Library::sax_parse(text, &builder)) return builder.take();
  if (!builder.too_deep()) {
    const std::string_view before = text.substr(0, builder.ends());
    return error(ErrorCode::InvalidArgument, "%s is not JSON, from line %td on", what,
                 1 + std::count(before.begin(), before.end(), '\n'));
  }
  return error(ErrorCode::InvalidArgument, "%s is nested more than %zu deep", what, kMaxDepth);
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

void Json::write(std::string& out, int indent, int level) const {
  const auto begin_part = [&](bool first) {
    if (!first) out += ',';
    begin_line(out, indent, level + 1);
  };
  if (const auto* parts = elements()) {
    out += '[';
    for (const Json& element : *parts) {
      begin_part(&element == parts->data());
      element.write(out, indent, level + 1);
    }
    if (!parts->empty()) begin_line(out, indent, level);
    out += ']';
  } else if (const auto* named = members()) {
    out += '{';
    for (const Member& member : *named) {
      begin_part(&member == named->data());
      write_text(out, member.name);
      out += indent < 0 ? ":" : ": ";
      member.value.write(out, indent, level + 1);
    }
    if (!named->empty()) begin_line(out, indent, level);
    out += '}';
  } else if (const auto* string = text()) {
    write_text(out, *string);
  } else if (const auto* real = std::get_if<double>(&value_)) {
    out += by_library(*real);
  } else if (const auto* negative = std::get_if<int64_t>(&value_)) {
    out += std::to_string(*negative);
  } else if (const auto* natural = std::get_if<uint64_t>(&value_)) {
    out += std::to_string(*natural);
  } else {
    const auto* truth = std::get_if<bool>(&value_);
    out += truth == nullptr ? "null" : *truth ? "true" : "false";
  }
}

}  // namespace hetccl
