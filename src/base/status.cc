#include "base/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace hetccl {

namespace {

std::string vformat(const char* format, va_list arguments) {
  va_list copy;
  va_copy(copy, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  if (length < 0) return format;  // an encoding error: the bare format is better than nothing
  std::string text(static_cast<size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

}  // namespace

Status::Status(ErrorCode code, std::string message) {
  if (code != ErrorCode::Ok) rep_ = std::make_unique<Rep>(Rep{code, std::move(message)});
}

Status::Status(const Status& other)
    : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
  return *this;
}

const std::string& Status::message() const {
  static const std::string empty;
  return rep_ ? rep_->message : empty;
}

Status Status::with(std::string_view context) const {
  if (ok()) return {};
  std::string message(context);
  message.append(": ").append(rep_->message);
  return {rep_->code, std::move(message)};
}

Status error(ErrorCode code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string message = vformat(format, arguments);
  va_end(arguments);
  return {code, std::move(message)};
}

Status system_error(std::string_view what, int errno_value) {
  char buffer[128];
  std::string message(what);
  message.append(": ").append(strerror_r(errno_value, buffer, sizeof buffer));
  return {ErrorCode::SystemError, std::move(message)};
}

std::string format(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = vformat(format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace hetccl
