#include "core/reject.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace forward {
namespace {

struct Counter {
  std::mutex mutex;
  unsigned long count = 0;
  std::set<std::string> printed;
};

// The counter is leaked on purpose: a program may call HIP from its own static destructors.
Counter& counter() {
  static Counter* instance = new Counter;
  return *instance;
}

void print_once(Counter& state, const std::string& line) {
  if (state.printed.insert(line).second) std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace

void count_rejection(const char* function, const char* argument, unsigned long long value) {
  char hex[32];
  std::snprintf(hex, sizeof hex, "%llu (0x%llx)", value, value);
  Counter& state = counter();
  const std::lock_guard<std::mutex> lock(state.mutex);
  ++state.count;
  print_once(state, std::string("forward: ") + function + " rejects " + argument + " " + hex +
                        ": AMD's header does not define it");
}

void count_rejected_text(const char* function, const char* text) {
  Counter& state = counter();
  const std::lock_guard<std::mutex> lock(state.mutex);
  ++state.count;
  print_once(state, std::string("forward: ") + function + " rejects " + text);
}

void explain_once(const char* function, const char* message) {
  Counter& state = counter();
  const std::lock_guard<std::mutex> lock(state.mutex);
  print_once(state, std::string("forward: ") + function + ": " + message);
}

unsigned long rejections() {
  Counter& state = counter();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.count;
}

}  // namespace forward
