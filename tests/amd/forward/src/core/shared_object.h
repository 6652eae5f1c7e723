// Opens a vendor library at run time and resolves its symbols.
#pragma once

#include <string>

namespace forward {

class SharedObject {
 public:
  /// Opens the path in the environment variable `variable`, or else the first of `names` that
  /// loads. `names` is a list that commas separate. Prints a message if none loads.
  /// The library binds to its own symbols first: NCCL calls its public functions by name, and
  /// librccl.so.1 here exports the same names.
  SharedObject(const char* variable, const char* names);

  [[nodiscard]] bool loaded() const { return handle_ != nullptr; }

  /// Sets `function` to the symbol `name`, or to null if the library lacks it.
  template <typename Function>
  void resolve(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(symbol(name));
  }

 private:
  [[nodiscard]] void* symbol(const char* name) const;

  void* handle_ = nullptr;
};

}  // namespace forward
