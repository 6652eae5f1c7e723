// JSON in and out. What comes in may be another process's or a file's: asking a value for what it
// is not gives nothing, and nothing throws. Only json.cc knows the library that does the work,
// whose templates take longer to compile than everything else here.
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

/// A value. An object keeps its members in the order in which they came.
class Json {
 public:
  struct Member;
  /// Arrays and objects may lie in each other so deep.
  static constexpr size_t kMaxDepth = 64;

  /// Reads `text`, which must be UTF-8. Of members with one name the last counts. InvalidArgument,
  /// naming `what`, for more than `max_bytes`, text that is no JSON, numbers beyond double and
  /// nesting beyond kMaxDepth.
  static Result<Json> parse(std::string_view text, const char* what, size_t max_bytes);
  /// Without spaces, or each element on a line, indented by `indent` spaces for each level. What is
  /// no UTF-8 (names come from the system and may be any bytes) becomes U+FFFD; numbers that are
  /// not finite become null.
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
  Json(const void*) = delete;  // which would be a bool
  Json(std::vector<Json> elements);
  Json(std::vector<Member> members);
  /// An object of at least one member: Json{{"rank", 3}, {"host", name}}.
  Json(std::initializer_list<JsonField> fields);
  template <typename T>
  Json(const std::vector<T>& values) : Json(std::vector<Json>(values.begin(), values.end())) {}
  // NOLINTEND(google-explicit-constructor)
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  [[nodiscard]] bool is_null() const;
  /// The integer, if it is one from `least` to `most`; 1.0 is none.
  [[nodiscard]] std::optional<int64_t> integer(int64_t least, int64_t most) const;
  /// Any number.
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::optional<bool> boolean() const;
  // Null where the value is something else.
  [[nodiscard]] const std::string* text() const;
  [[nodiscard]] const std::vector<Json>* elements() const;
  [[nodiscard]] const std::vector<Member>* members() const;
  /// How many elements or members.
  [[nodiscard]] size_t size() const;

  /// An object's member; null when there is none.
  [[nodiscard]] const Json* find(std::string_view name) const;
  /// The same, but a JSON null when there is none.
  const Json& operator[](std::string_view name) const;
  /// An array's element; a JSON null when there is none.
  const Json& operator[](size_t index) const;

  /// Adds the member, or changes its value, in an object or what was something else before.
  void set(std::string_view name, Json value);

  bool operator==(const Json& other) const;

 private:
  void write(std::string& out, int indent, int level) const;

  // Integers that are not negative are unsigned, so that equal ones are equal.
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, std::vector<Json>,
               std::vector<Member>>
      value_;
};

struct Json::Member {
  std::string name;
  Json value;
  bool operator==(const Member&) const = default;
};

/// What lists of initializers hold: they are constant, and yet what they hold is moved out of them.
struct JsonField {
  std::string_view name;
  mutable Json value;
};

}  // namespace hetccl
