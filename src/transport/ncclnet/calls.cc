#include "transport/ncclnet/calls.h"

#include <cstring>
#include <type_traits>

#include "base/printable.h"
#include "transport/ncclnet/plugin_log.h"

namespace hetccl::transport::ncclnet {
namespace {

constexpr size_t kMostOfName = 64, kMostOfPath = 4096;

std::string text_of(const char* text) {
  return text != nullptr ? printable(text, kMostOfName) : "";
}

std::string path_of(const char* path) {
  return path != nullptr ? std::string(path, ::strnlen(path, kMostOfPath)) : "";
}

template <typename From>
void fill(const From& from, Properties* to) {
  if constexpr (requires { from.common; }) {
    fill(from.common, to);
  } else {
    *to = {.name = text_of(from.name),
           .pci_path = path_of(from.pci_path),
           .pointers = from.pointers,
           .mbps = from.mbps,
           .port = from.port,
           .latency = from.latency,
           .max_comms = from.max_comms,
           .max_receives = from.max_receives,
           .max_bytes = size_t{0x7fffffff}};
    if constexpr (requires { from.max_bytes; }) {  // from version 9 on
      to->forces_flush = from.force_flush != 0;
      to->max_bytes = from.max_bytes;
    }
  }
}

// Ignores events: plug-ins only report events of requests that were given one, and hetccl gives
// none.
int ignore_event(void** /*event*/, int /*type*/, void* /*parent*/, int64_t /*plugin*/,
                 void* /*data*/) {
  return abi::kSuccess;
}

template <typename Version>
class CallsOf final : public Calls {
 public:
  explicit CallsOf(const abi::Net<Version>& net) : net_(net) {}

  [[nodiscard]] int version() const override { return Version::kNumber; }
  [[nodiscard]] const char* name() const override { return net_.name; }

  int init() override {
    if constexpr (Version::kNumber >= 11) {
      constexpr uint64_t kCommunicator = 1;  // all of hetccl's ranks share one context per process
      return net_.init(&context_, kCommunicator, &config_, log_of_plugin, ignore_event);
    } else if constexpr (Version::kNumber == 10) {
      return net_.init(log_of_plugin, ignore_event);
    } else {
      return net_.init(log_of_plugin);
    }
  }
  [[nodiscard]] bool is_complete() const override {
    return net_.name != nullptr && net_.devices != nullptr && net_.get_properties != nullptr &&
           net_.listen != nullptr && net_.connect != nullptr && net_.accept != nullptr &&
           net_.register_memory != nullptr && net_.deregister != nullptr && net_.send != nullptr &&
           net_.receive != nullptr && net_.test != nullptr && net_.close_sender != nullptr &&
           net_.close_receiver != nullptr && net_.close_listener != nullptr;
  }
  int devices(int* n) override { return net_.devices(n); }
  int properties(int device, Properties* properties) override {
    typename Version::Properties told{};
    const int code = net_.get_properties(device, &told);
    if (code == abi::kSuccess) fill(told, properties);
    return code;
  }
  int listen(int device, void* handle, void** listener) override {
    if constexpr (Version::kNumber >= 11) {
      return net_.listen(context_, device, handle, listener);
    } else {
      return net_.listen(device, handle, listener);
    }
  }
  int connect(int device, void* handle, void** sender) override {
    void* offload = nullptr;  // hetccl wants none
    if constexpr (Version::kNumber >= 11) {
      return net_.connect(context_, device, handle, sender, &offload);
    } else if constexpr (Version::kNumber == 10) {
      return net_.connect(device, &config_, handle, sender, &offload);
    } else {
      return net_.connect(device, handle, sender, &offload);
    }
  }
  int accept(void* listener, void** receiver) override {
    void* offload = nullptr;
    return net_.accept(listener, receiver, &offload);
  }
  int register_memory(void* comm, const Range& range, void** region) override {
    if (range.memory != MemoryType::DmaBuf)
      return net_.register_memory(comm, range.data, range.bytes, static_cast<int>(range.memory),
                                  region);
    if (net_.register_dma_buf == nullptr) return abi::kInvalidUsage;
    return net_.register_dma_buf(comm, range.data, range.bytes, abi::kPointerCuda, range.offset,
                                 range.fd, region);
  }
  int deregister(void* comm, void* region) override { return net_.deregister(comm, region); }
  int send(void* sender, const Range& range, void* region, void** request) override {
    const auto bytes = static_cast<typename Version::Size>(range.bytes);
    if constexpr (Version::kNumber >= 10) {
      return net_.send(sender, range.data, bytes, 0, region, nullptr, request);
    } else {
      return net_.send(sender, range.data, bytes, 0, region, request);
    }
  }
  int receive(void* receiver, const Range& range, void* region, void** request) override {
    void* data = range.data;
    auto bytes = static_cast<typename Version::Size>(range.bytes);
    int tag = 0;
    void* event = nullptr;
    if constexpr (Version::kNumber >= 10) {
      return net_.receive(receiver, 1, &data, &bytes, &tag, &region, &event, request);
    } else {
      return net_.receive(receiver, 1, &data, &bytes, &tag, &region, request);
    }
  }
  [[nodiscard]] bool can_flush() const override { return net_.flush != nullptr; }
  int flush(void* receiver, const Range& range, void* region, void** request) override {
    void* data = range.data;
    int bytes = static_cast<int>(range.bytes);
    return net_.flush(receiver, 1, &data, &bytes, &region, request);
  }
  int test(void* request, int* done, int* bytes) override {
    return net_.test(request, done, bytes);
  }
  int close_sender(void* sender) override { return net_.close_sender(sender); }
  int close_receiver(void* receiver) override { return net_.close_receiver(receiver); }
  int close_listener(void* listener) override { return net_.close_listener(listener); }

 private:
  const abi::Net<Version>& net_;
  abi::CommConfig config_{-1};
  void* context_ = nullptr;
};

// Returns the calls of the newest version that the library has; null: none of these.
template <typename Version, typename... Older>
Result<std::unique_ptr<Calls>> find(const DynLib& library) {
  const std::string name = format("ncclNetPlugin_v%d", Version::kNumber);
  const void* found = library.symbol(name.c_str());
  if (found != nullptr) {
    const auto& net = *static_cast<const abi::Net<Version>*>(found);
    if (net.init == nullptr)
      return error(ErrorCode::Unsupported, "its %s has no init", name.c_str());
    return std::unique_ptr<Calls>(std::make_unique<CallsOf<Version>>(net));
  }
  if constexpr (sizeof...(Older) > 0) {
    return find<Older...>(library);
  } else {
    return error(ErrorCode::Unsupported,
                 "it has none of ncclNetPlugin_v8 to ncclNetPlugin_v12, so it is no net plug-in of "
                 "NCCL 2.19 or newer");
  }
}

}  // namespace

Result<std::unique_ptr<Calls>> find_calls(const DynLib& library) {
  return find<abi::V12, abi::V11, abi::V10, abi::V9, abi::V8>(library);
}

std::string name_of_code(int code) {
  switch (code) {
    case abi::kSuccess:
      return "ncclSuccess";
    case abi::kUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case abi::kSystemError:
      return "ncclSystemError";
    case abi::kInternalError:
      return "ncclInternalError";
    case abi::kInvalidArgument:
      return "ncclInvalidArgument";
    case abi::kInvalidUsage:
      return "ncclInvalidUsage";
    case abi::kRemoteError:
      return "ncclRemoteError";
    default:
      return format("code %d", code);
  }
}

}  // namespace hetccl::transport::ncclnet
