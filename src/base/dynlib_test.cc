#include "base/dynlib.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl {
namespace {

TEST_CASE("a library that the process has loaded is reused, whatever its place in the list") {
  const std::vector<std::string> names = {"libhetccl-does-not-exist.so.9", "libc.so.6"};
  auto library = DynLib::open(names);
  REQUIRE(library.ok());
  CHECK(library->path().find("libc.so.6") != std::string::npos);
  void* address = library->symbol("strlen");
  REQUIRE(address);
  CHECK(reinterpret_cast<size_t (*)(const char*)>(address)("four") == 4);
  CHECK(library->symbol("hetccl_no_such_symbol") == nullptr);
}

TEST_CASE("what failed is listed") {
  const std::vector<std::string> names = {"libhetccl-a.so", "libhetccl-b.so"};
  const auto library = DynLib::open(names);
  CHECK(library.status().code() == ErrorCode::SystemError);
  CHECK(library.status().message().find("libhetccl-a.so") != std::string::npos);
  CHECK(library.status().message().find("libhetccl-b.so") != std::string::npos);
  CHECK(DynLib::open({}).status().code() == ErrorCode::SystemError);
}

TEST_CASE("a FIFO that a setting names is refused at once") {
  char folder[] = "/tmp/hetccl-dynlib-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::vector<std::string> names = {std::string(folder) + "/libnccl.so.2"};
  REQUIRE(mkfifo(names[0].c_str(), 0600) == 0);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<bool> opened{false};
  fake::Thread rescuer([&] {  // releases a reader that waits for a writer
    const auto given = begin + fake::kHang / 4;
    for (; !opened; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      if (std::chrono::steady_clock::now() > given)
        close(open(names[0].c_str(), O_WRONLY | O_NONBLOCK));
    }
  });
  const auto library = DynLib::open(names);
  opened = true;
  rescuer.join();
  CHECK(library.status().message() == "no library found: " + names[0] + ": no regular file");
  CHECK(std::chrono::steady_clock::now() - begin < fake::kHang / 4);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a library is known by its path and by its soname, and not by others' names") {
  const std::vector<std::string> names = {"libc.so.6"};
  const auto library = DynLib::open(names);
  REQUIRE(library.ok());
  CHECK(library.value().is_called("libc.so.6"));
  CHECK(library.value().is_called(library.value().path()));
  CHECK(library_of(library.value().symbol("strlen")) == library.value().path());
  CHECK_FALSE(library.value().is_called("libm.so.6"));
  CHECK_FALSE(library.value().is_called("/nonexistent/libc.so.6"));
  CHECK(library_of(nullptr).empty());
  CHECK(global_symbol("hetccl_no_such_symbol") == nullptr);
  CHECK(global_symbol("abort") != nullptr);
}

TEST_CASE("a library can be moved") {
  const std::vector<std::string> names = {"libc.so.6"};
  auto first = DynLib::open(names);
  auto second = DynLib::open(names);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  DynLib moved = std::move(first).value();
  moved = std::move(second).value();
  CHECK(moved.symbol("strlen") != nullptr);
}

}  // namespace
}  // namespace hetccl
