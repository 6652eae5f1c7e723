// Makes and reads values.
#include <algorithm>
#include <limits>

#include "base/json.h"

namespace hetccl {

using Members = std::vector<Json::Member>;

namespace {

const Json& missing() {
  static const Json null;
  return null;
}

}  // namespace

Json::Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(value) {}
Json::Json(int32_t value) : Json(int64_t{value}) {}
Json::Json(uint32_t value) : Json(uint64_t{value}) {}
Json::Json(int64_t value) {
  if (value < 0)
    value_ = value;
  else
    value_ = static_cast<uint64_t>(value);
}
Json::Json(uint64_t value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::vector<Json> elements) : value_(std::move(elements)) {}
Json::Json(std::vector<Member> members) : value_(std::move(members)) {}
Json::Json(std::initializer_list<JsonField> fields) {
  Members members;
  members.reserve(fields.size());
  for (const JsonField& field : fields) {
    members.push_back({std::string(field.name), std::move(field.value)});
  }
  value_ = std::move(members);
}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}
Json::~Json() = default;

bool Json::is_null() const {
  return std::holds_alternative<std::nullptr_t>(value_);
}

std::optional<int64_t> Json::integer(int64_t least, int64_t most) const {
  const auto* natural = std::get_if<uint64_t>(&value_);
  const auto* negative = std::get_if<int64_t>(&value_);
  if (natural != nullptr && *natural > std::numeric_limits<int64_t>::max()) return std::nullopt;
  if (natural == nullptr && negative == nullptr) return std::nullopt;
  const int64_t value = natural != nullptr ? static_cast<int64_t>(*natural) : *negative;
  if (value < least || value > most) return std::nullopt;
  return value;
}

std::optional<double> Json::number() const {
  if (const auto* natural = std::get_if<uint64_t>(&value_)) return static_cast<double>(*natural);
  if (const auto* negative = std::get_if<int64_t>(&value_)) return static_cast<double>(*negative);
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  return std::nullopt;
}

std::optional<bool> Json::boolean() const {
  const auto* value = std::get_if<bool>(&value_);
  return value == nullptr ? std::nullopt : std::optional<bool>(*value);
}

const std::string* Json::text() const {
  return std::get_if<std::string>(&value_);
}

const std::vector<Json>* Json::elements() const {
  return std::get_if<std::vector<Json>>(&value_);
}

const Members* Json::members() const {
  return std::get_if<Members>(&value_);
}

size_t Json::size() const {
  if (const auto* parts = elements()) return parts->size();
  if (const auto* named = members()) return named->size();
  return 0;
}

const Json* Json::find(std::string_view name) const {
  if (const auto* named = members()) {
    for (const Member& member : *named) {
      if (member.name == name) return &member.value;
    }
  }
  return nullptr;
}

const Json& Json::operator[](std::string_view name) const {
  const Json* found = find(name);
  return found != nullptr ? *found : missing();
}

const Json& Json::operator[](size_t index) const {
  const auto* parts = elements();
  return parts != nullptr && index < parts->size() ? (*parts)[index] : missing();
}

void Json::set(std::string_view name, Json value) {
  if (members() == nullptr) value_ = Members();
  auto& named = std::get<Members>(value_);
  const auto at = std::find_if(named.begin(), named.end(),
                               [&](const Member& member) { return member.name == name; });
  if (at != named.end())
    at->value = std::move(value);
  else
    named.push_back({std::string(name), std::move(value)});
}

bool Json::operator==(const Json& other) const {
  return value_ == other.value_;
}

}  // namespace hetccl
