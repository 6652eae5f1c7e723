// JSON in and out. Input may come from another process or a file, so reading a value as another
// type returns nothing, and nothing throws. Only json.cc includes the library that does the work,
// because its templates compile slowly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace hetccl {

struct JsonField;

/// A value. An object keeps its members in their order of arrival.
class Json {
 public:
  struct Member;
  /// The deepest nesting of arrays and objects.
  static constexpr size_t kMaxDepth = 64;

  /// Parses `text`, which must be UTF-8. Of members with equal names the last counts. Returns
  /// InvalidArgument, naming `what`, for more than `max_bytes`, text that is no JSON, numbers
  /// beyond double, and nesting beyond kMaxDepth.
  static Result<Json> parse(std::string_view text, const char* what, size_t max_bytes);
  /// Writes without spaces, or one element per line, indented by `indent` spaces for each level.
  /// Bytes that are no UTF-8 (system names may hold any) become U+FFFD; numbers that are not finite
  /// become null.
  [[nodiscard]] std::string dump(int indent = -1) const;

  Json();  ///< null
  // NOLINTBEGIN(google-explicit-constructor)
  Json(std::nullptr_t);
  Json(bool value);
  Json(int32_t value);
  Json(uint32_t value);
  Json(int64_t value);
  Json(uint64_t value);
  Json(double value);
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  Json(const void*) = delete;  // would convert to bool
  Json(std::vector<Json> elements);
  Json(std::vector<Member> members);
  /// Makes an object of at least one member: Json{{"rank", 3}, {"host", name}}.
  Json(std::initializer_list<JsonField> fields);
  template <typename T>
  Json(const std::vector<T>& values) : Json(std::vector<Json>(values.begin(), values.end())) {}
  // NOLINTEND(google-explicit-constructor)
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  [[nodiscard]] bool is_null() const;
  /// Returns the integer if it is one from `least` to `most`; 1.0 is none.
  [[nodiscard]] std::optional<int64_t> integer(int64_t least, int64_t most) const;
  /// Any number.
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::optional<bool> boolean() const;
  // Returns null if the value is not of that type.
  [[nodiscard]] const std::string* text() const;
  [[nodiscard]] const std::vector<Json>* elements() const;
  [[nodiscard]] const std::vector<Member>* members() const;
  /// Returns the number of elements or members.
  [[nodiscard]] size_t size() const;

  /// Returns an object's member; null: none.
  [[nodiscard]] const Json* find(std::string_view name) const;
  /// Returns an object's member; a JSON null if there is none.
  const Json& operator[](std::string_view name) const;
  /// Returns an array's element; a JSON null if there is none.
  const Json& operator[](size_t index) const;

  /// Adds or changes a member. Any other value first becomes an object.
  void set(std::string_view name, Json value);

  bool operator==(const Json& other) const;

 private:
  void write(std::string& out, int indent, int level) const;

  // Non-negative integers are unsigned, so that equal ones compare equal.
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, std::vector<Json>,
               std::vector<Member>>
      value_;
};

struct Json::Member {
  std::string name;
  Json value;
  bool operator==(const Member&) const = default;
};

/// An element of an initializer list. Such lists are constant, but this lets its contents be moved
/// out.
struct JsonField {
  std::string_view name;
  mutable Json value;
};

}  // namespace hetccl
