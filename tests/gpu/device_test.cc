// A GPU as a device: properties that the contract does not ask of every device.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "base/clock.h"
#include "fake/reductions.h"
#include "fake/thread.h"
#include "gpu/gpu.h"

using namespace hetccl;
using namespace hetccl::device;
using namespace hetccl::gpu_tests;

namespace {

// The machine's runtime with every call counted, by name.
struct Counting {
  std::map<std::string, std::atomic<int>> counts;
  std::shared_ptr<gpu::Api> api;

  Counting() {
    api = std::make_shared<gpu::Api>();
    const auto real = runtime();
    api->vendor = real->vendor;
    api->version = real->version;
    api->error_text = real->error_text;
    api->device_count = real->device_count;
    api->device_name = real->device_name;
    api->device_bus_id = real->device_bus_id;
    api->device_architecture = real->device_architecture;
    api->device_multiprocessors = real->device_multiprocessors;
    api->retain_context = real->retain_context;
    api->release_context = real->release_context;
    api->get_context = real->get_context;
    api->current_device = real->current_device;
    api->stand_apart = real->stand_apart;
    count("set_context", api->set_context, real->set_context);
    count("allocate", api->allocate, real->allocate);
    count("free", api->free, real->free);
    count("allocate_pinned", api->allocate_pinned, real->allocate_pinned);
    count("free_pinned", api->free_pinned, real->free_pinned);
    count("pin", api->pin, real->pin);
    count("unpin", api->unpin, real->unpin);
    count("create_stream", api->create_stream, real->create_stream);
    count("destroy_stream", api->destroy_stream, real->destroy_stream);
    count("is_capturing", api->is_capturing, real->is_capturing);
    count("create_event", api->create_event, real->create_event);
    count("destroy_event", api->destroy_event, real->destroy_event);
    count("record", api->record, real->record);
    count("wait", api->wait, real->wait);
    count("wait_word", api->wait_word, real->wait_word);
    count("write_word", api->write_word, real->write_word);
    count("copy", api->copy, real->copy);
    count("call_host", api->call_host, real->call_host);
    count("load_module", api->load_module, real->load_module);
    count("unload_module", api->unload_module, real->unload_module);
    count("find_kernel", api->find_kernel, real->find_kernel);
    count("launch", api->launch, real->launch);
  }

 private:
  template <typename... Arguments>
  void count(const char* name, std::function<int(Arguments...)>& call,
             const std::function<int(Arguments...)>& real) {
    if (!real) return;
    auto& counter = counts[name];
    call = [&counter, &real](Arguments... arguments) {
      ++counter;
      return real(arguments...);
    };
  }
};

void check_bits(GpuDevice& device, Stream& stream, const fake::ReductionCase& test) {
  const size_t element = size_of(test.type), room = (test.count + 16) * element;
  Reduction r = test.reduction();
  std::vector<void*> memory;
  for (size_t s = 0; s < test.srcs.size(); ++s) {
    memory.push_back(device.allocate(room).value());
    upload(device, memory.back(), test.srcs[s].bytes.data(), test.srcs[s].bytes.size());
    r.srcs[s] = static_cast<std::byte*>(memory.back()) + test.srcs[s].offset * element;
  }
  memory.push_back(device.allocate(room).value());
  r.dst = test.alias < 0 ? static_cast<std::byte*>(memory.back()) + test.dst_offset * element
                         : const_cast<void*>(r.srcs[test.alias]);
  memory.push_back(device.allocate(room).value());
  std::vector<std::byte> residual = test.residual.bytes;
  if (!residual.empty()) {
    upload(device, memory.back(), residual.data(), residual.size());
    r.residual = static_cast<std::byte*>(memory.back()) + test.residual.offset * element;
  }
  REQUIRE(device.reduce(stream, r).ok());
  REQUIRE(drain(device, stream));
  std::vector<std::byte> got(test.result_bytes());
  download(device, got.data(), r.dst, got.size());
  if (!residual.empty()) download(device, residual.data(), memory.back(), residual.size());
  const std::string name(name_of(test.type)), op(name_of(test.op));
  CAPTURE(name);
  CAPTURE(op);
  CAPTURE(test.count);
  CAPTURE(test.srcs.size());
  CAPTURE(name_of(test.encoding));
  const fake::Expected expected = fake::expected_of(test);
  CHECK(got == expected.result);
  CHECK(residual == expected.residual);
  for (void* one : memory) device.free(one);
}

}  // namespace

TEST_CASE("kernels give the bits of base/reduce.h and encoding.h, with any number of blocks") {
  if (runtime() == nullptr) return;
  for (const int blocks : {0, 8, 1}) {
    auto device = open(0, nullptr, blocks);
    REQUIRE((device->capabilities() & kKernels) != 0);
    auto stream = device->create_stream().value();
    fake::for_each_reduction(blocks == 0 ? 100'003 : 5000, [&](const fake::ReductionCase& test) {
      check_bits(*device, *stream, test);
    });
    fake::for_each_encoded_reduction(
        blocks == 0 ? 100'003 : 5000,
        [&](const fake::ReductionCase& test) { check_bits(*device, *stream, test); });
  }
}

TEST_CASE("every bit pattern of 8- and 16-bit floats") {
  if (runtime() == nullptr) return;
  auto device = open();
  auto stream = device->create_stream().value();
  for (const DataType type :
       {DataType::Float8E4m3, DataType::Float8E5m2, DataType::Float16, DataType::BFloat16}) {
    const size_t element = size_of(type);
    fake::ReductionCase test{type, RedOp::Sum, 65'536, {}, 0, -1, 1, {}};
    fake::Operand all, other;
    for (size_t i = 0; i < 65'536; ++i) {
      for (size_t b = 0; b < element; ++b) {
        all.bytes.push_back(static_cast<std::byte>(i >> 8 * b));
        other.bytes.push_back(
            static_cast<std::byte>(element == 1 ? i >> 8 : (i * 40'503) >> 8 * b));
      }
    }
    test.srcs = {all};
    for (const RedOp op : fake::kOps) {
      test.op = op;
      test.factor = fake::element_of(type, 0.3);
      check_bits(*device, *stream, test);
      test.srcs.push_back(other);
      check_bits(*device, *stream, test);
      test.srcs.pop_back();
    }
  }
}

TEST_CASE("in the steady state nothing is allocated, made, loaded or waited for") {
  if (runtime() == nullptr) return;
  Counting counting;
  auto device = open(0, counting.api);
  auto a = device->create_stream().value(), b = device->create_stream().value();
  auto event = device->create_event().value();
  auto* flags = static_cast<Flag*>(device->allocate_pinned(2 * sizeof(Flag)).value());
  void* memory = device->allocate(1 << 20).value();
  auto& counts = counting.counts;
  int reductions = 0;
  const std::map<std::string, int> before = {counts.begin(), counts.end()};
  for (uint32_t i = 1; i <= 100; ++i) {
    for (const DataType type : fake::kTypes) {
      for (const RedOp op : fake::ops_of(type)) {
        Reduction r;
        r.dst = memory;
        r.srcs[0] = r.srcs[1] = memory;
        r.n_srcs = 2;
        r.count = 100;
        r.type = type;
        r.op = op;
        REQUIRE(device->reduce(*a, r).ok());
        ++reductions;
      }
    }
    REQUIRE(device->record(*event, *a).ok());
    REQUIRE(device->wait(*b, *event).ok());
    REQUIRE(device->copy(*b, memory, static_cast<std::byte*>(memory) + 4096, 4096).ok());
    REQUIRE(device->write_flag(*b, flags[0], i).ok());
    REQUIRE(device->wait_flag(*a, flags[0], i).ok());
  }
  const std::map<std::string, int> after = {counts.begin(), counts.end()};
  for (const auto& [name, count] : after) {
    CAPTURE(name);
    const bool work = name == "launch" || name == "record" || name == "wait" || name == "copy" ||
                      name == "wait_word" || name == "write_word" || name == "set_context";
    if (!work) CHECK(count == before.at(name));
  }
  const int flags_by_kernels = counting.api->wait_word ? 0 : 200;
  CHECK(after.at("launch") - before.at("launch") == reductions + flags_by_kernels);
  REQUIRE(drain(*device, *a));
  REQUIRE(drain(*device, *b));
  device->free(memory);
  device->free_pinned(flags);
}

TEST_CASE("kernels wait for flags and write them where streams cannot") {
  if (runtime() == nullptr) return;
  Counting counting;
  counting.api->wait_word = nullptr;
  counting.api->write_word = nullptr;
  auto device = open(0, counting.api);
  auto stream = device->create_stream().value();
  auto* flags = static_cast<Flag*>(device->allocate_pinned(2 * sizeof(Flag)).value());
  for (uint32_t i = 1; i <= 5; ++i) {
    REQUIRE(device->wait_flag(*stream, flags[0], i).ok());
    REQUIRE(device->write_flag(*stream, flags[1], i).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_FALSE(flags[1].reached(i));
    flags[0].word.store(i);
    REQUIRE(drain(*device, *stream));
    CHECK(flags[1].reached(i));
  }
  REQUIRE(device->wait_flag(*stream, flags[0], 1000).ok());
  flags[0].word.store(kFlagAborted);
  CHECK(drain(*device, *stream));
  device->free_pinned(flags);
}

TEST_CASE("any thread may call, and keeps its own device") {
  if (runtime() == nullptr) return;
  const int devices = count();
  std::vector<std::unique_ptr<GpuDevice>> opened;
  for (int i = 0; i < devices; ++i) opened.push_back(open(i));
  const int of_new_thread = vendors().front() == "hip" ? 0 : -1;  // CUDA's has none
  std::vector<fake::Thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      if (gpu::current_device(*runtime()) != of_new_thread) ++wrong;
      if (t % 2 == 1) opened[0]->make_current();
      const int mine = gpu::current_device(*runtime());
      for (int i = 0; i < 20; ++i) {
        auto& device = *opened[static_cast<size_t>(i % devices)];
        auto stream = device.create_stream();
        void* memory = device.allocate(4096).value();
        if (!device.copy(**stream, memory, static_cast<std::byte*>(memory) + 2048, 2048).ok())
          ++wrong;
        if (!drain(device, **stream)) ++wrong;
        device.free(memory);
        if (gpu::current_device(*runtime()) != mine) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("the default stream is a stream, and an index that is none is refused") {
  if (runtime() == nullptr) return;
  auto device = open();
  auto stream = device->wrap_stream(nullptr);
  REQUIRE(stream.ok());
  CHECK(drain(*device, **stream));
  GpuOptions options;
  for (const int index : {-1, count()}) {
    options.index = index;
    CHECK(make_gpu_device(runtime(), options).status().code() == ErrorCode::InvalidArgument);
  }
  const auto without_compiler = make_gpu_device(runtime(), GpuOptions{});
  if (runtime()->wait_word)
    CHECK((without_compiler.value()->capabilities() & kKernels) == 0);
  else
    CHECK(without_compiler.status().code() == ErrorCode::Unsupported);
}
