#include "device/kernels/cache.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl::device::kernels {
namespace {

namespace fs = std::filesystem;

// Gives each test its own folder.
struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "hetccl-cache-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path;
};

const Images kImages = {"first", std::string("\0with\0zeros", 11), ""};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replace(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

TEST_CASE("what was written is read, under its key alone") {
  const Folder folder;
  const Cache cache(folder.path + "/made/on/demand");
  CHECK_FALSE(cache.read("key").ok());
  REQUIRE(cache.write("key", kImages).ok());
  CHECK(cache.read("key").value() == kImages);
  CHECK_FALSE(cache.read("other").ok());
  REQUIRE(cache.write("key", {"newer"}).ok());
  CHECK(cache.read("key").value() == Images{"newer"});
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path + "/made/on/demand"))
    files += entry.exists() ? 1 : 0;
  CHECK(files == 1);
}

TEST_CASE("a file that is cut off, damaged or of another key is refused") {
  const Folder folder;
  const Cache cache(folder.path);
  REQUIRE(cache.write("key", kImages).ok());
  const std::string path = cache.path_of("key"), whole = contents(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    replace(path, whole.substr(0, bytes));
    CHECK_FALSE(cache.read("key").ok());
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    replace(path, damaged);
    CHECK_FALSE(cache.read("key").ok());
  }
  REQUIRE(cache.write("other", kImages).ok());
  replace(path, contents(cache.path_of("other")));
  CHECK(cache.read("key").status().message().find("something else") != std::string::npos);
}

TEST_CASE("a file that others could have written is refused, and so is a link") {
  const Folder folder;
  const Cache cache(folder.path);
  REQUIRE(cache.write("key", kImages).ok());
  const std::string path = cache.path_of("key");
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  CHECK(cache.read("key").status().message().find("other users") != std::string::npos);
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  CHECK(cache.read("key").ok());
  fs::rename(path, folder.path + "/elsewhere");
  fs::create_symlink(folder.path + "/elsewhere", path);
  CHECK_FALSE(cache.read("key").ok());
}

TEST_CASE("a FIFO in the place of a file is refused at once, and replaced by what is compiled") {
  const Folder folder;
  const Cache cache(folder.path);
  const std::string path = cache.path_of("key");
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<bool> read{false};
  fake::Thread rescuer([&] {  // releases a reader that waits for a writer
    const auto given = begin + fake::kHang / 4;
    for (; !read; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      if (std::chrono::steady_clock::now() > given)
        close(open(path.c_str(), O_WRONLY | O_NONBLOCK));
    }
  });
  const auto found = cache.read("key");
  read = true;
  rescuer.join();
  CHECK(found.status().message() == path + " is no regular file");
  CHECK(std::chrono::steady_clock::now() - begin < fake::kHang / 4);
  REQUIRE(cache.write("key", kImages).ok());
  CHECK(cache.read("key").value() == kImages);
}

TEST_CASE(
    "a folder that cannot be written is an error that changes nothing, and no folder is none") {
  const Folder folder;
  replace(folder.path + "/file", "");
  CHECK_FALSE(Cache(folder.path + "/file/below").write("key", kImages).ok());
  CHECK(contents(folder.path + "/file").empty());
  if (geteuid() != 0) {
    REQUIRE(chmod(folder.path.c_str(), 0500) == 0);
    CHECK_FALSE(Cache(folder.path).write("key", kImages).ok());
    REQUIRE(chmod(folder.path.c_str(), 0700) == 0);
  }
  CHECK(Cache("").write("key", kImages).ok());
  CHECK_FALSE(Cache("").read("key").ok());
}

TEST_CASE("writers and readers at once: a reader sees nothing or a whole file") {
  const Folder folder;
  const Cache cache(folder.path);
  const auto images_of = [](int writer) {
    return Images(3, std::string(100'000, char('a' + writer)));
  };
  std::vector<fake::Thread> writers;
  for (int w = 0; w < 3; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 20; ++i) (void)cache.write("key", images_of(w));
    });
  }
  bool whole = true;
  for (int i = 0; i < 60; ++i) {
    const auto found = cache.read("key");
    if (!found.ok()) continue;
    const Images& images = found.value();
    whole &= images.size() == 3 && images == images_of(images[0][0] - 'a');
  }
  for (auto& writer : writers) writer.join();
  CHECK(whole);
  CHECK(cache.read("key").ok());
}

}  // namespace
}  // namespace hetccl::device::kernels
