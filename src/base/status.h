// Error handling inside hetccl: a Status, or a Result<T> that holds a value or a Status. Callers
// add context on the way up: `HETCCL_TRY(connect(...).with("connecting to rank 3"))`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hetccl {

/// The kind of failure. The C API maps each to one return code.
enum class ErrorCode {
  Ok,
  InvalidArgument,  ///< the caller passed a wrong value
  InvalidUsage,     ///< calls in the wrong order, or ranks that disagree
  SystemError,      ///< the operating system or a loaded library refused
  InternalError,    ///< a broken invariant of hetccl: always a bug
  RemoteError,      ///< another rank failed, left or cannot be reached
  Timeout,          ///< a deadline passed
  Aborted,          ///< the communicator was aborted
  Unsupported,      ///< not available on this device, type or build
};

/// Success, or a code with a message for the user. Success costs one null pointer.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  [[nodiscard]] bool ok() const { return !rep_; }
  [[nodiscard]] ErrorCode code() const { return rep_ ? rep_->code : ErrorCode::Ok; }
  /// Returns the message without the code; empty on success.
  [[nodiscard]] const std::string& message() const;
  /// Returns "<context>: <message>"; success stays success.
  [[nodiscard]] Status with(std::string_view context) const;

 private:
  struct Rep {
    ErrorCode code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

/// Makes an error with a printf-formatted message.
[[gnu::format(printf, 2, 3)]] Status error(ErrorCode code, const char* format, ...);
/// Makes a SystemError "<what>: <strerror(errno_value)>".
Status system_error(std::string_view what, int errno_value);
/// Formats like printf into a std::string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* format, ...);

/// A value, or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  T& operator*() { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace hetccl

#define HETCCL_CONCAT_(a, b) a##b
#define HETCCL_CONCAT(a, b) HETCCL_CONCAT_(a, b)
/// Returns from the enclosing function if `expression` is not ok.
#define HETCCL_TRY(expression)                   \
  do {                                           \
    ::hetccl::Status try_status_ = (expression); \
    if (!try_status_.ok()) [[unlikely]]          \
      return try_status_;                        \
  } while (false)
/// `HETCCL_ASSIGN(auto fd, open_it());` takes the value or returns the Status.
#define HETCCL_ASSIGN(declaration, expression)             \
  auto HETCCL_CONCAT(assign_, __LINE__) = (expression);    \
  if (!HETCCL_CONCAT(assign_, __LINE__).ok()) [[unlikely]] \
    return HETCCL_CONCAT(assign_, __LINE__).status();      \
  declaration = std::move(HETCCL_CONCAT(assign_, __LINE__)).value()
