// Records calls of the stub libraries as lines of text: the name, then each argument.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

namespace stub {

// The stub's state lives in the shared object that includes this header.
struct State {
  std::mutex mutex;
  std::string log;
  std::map<std::string, int> results;
};

inline State& state() {
  static State* instance = new State;
  return *instance;
}

inline void append(std::ostringstream& line, const void* pointer) {
  line << ' ' << reinterpret_cast<std::uintptr_t>(pointer);
}
template <typename T>
  requires std::is_arithmetic_v<T>
void append(std::ostringstream& line, T value) {
  line << ' ' << +value;
}

/// Records a call; returns the result that the test set for `name`, or else 0.
template <typename... Arguments>
int record(const char* name, Arguments... arguments) {
  std::ostringstream line;
  line << name;
  (append(line, arguments), ...);
  State& shared = state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  shared.log += line.str() + "\n";
  const auto found = shared.results.find(name);
  return found == shared.results.end() ? 0 : found->second;
}

}  // namespace stub

#define STUB_EXPORT extern "C" [[gnu::visibility("default")]]

/// Copies the log to `text` (at most `bytes`) and clears it.
STUB_EXPORT [[gnu::used]] inline void stub_take_log(char* text, std::size_t bytes) {
  stub::State& shared = stub::state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  std::strncpy(text, shared.log.c_str(), bytes - 1);
  text[bytes - 1] = '\0';
  shared.log.clear();
}

/// Makes later calls of `name` return `result`.
STUB_EXPORT [[gnu::used]] inline void stub_set_result(const char* name, int result) {
  stub::State& shared = stub::state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  shared.results[name] = result;
}
