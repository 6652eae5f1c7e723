// A fuzz target without libFuzzer: its seeds and its corpus, then seeded mutations of them for a
// moment. What ends the program is found in last-input-NAME, in the working directory.
//
//   smoke CORPUS [--seconds S] [--seed N]     smoke --write-seeds FOLDER
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;
using hetccl::fuzz::Bytes;

constexpr size_t kMaxInput = 64 << 10;

// The input that runs, in a file that outlives a crash.
class LastInput {
 public:
  explicit LastInput(std::string path) : path_(std::move(path)) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ::ftruncate(fd, kMaxInput) != 0) std::abort();
    memory_ = static_cast<uint8_t*>(
        ::mmap(nullptr, kMaxInput, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    fd_ = fd;
  }
  ~LastInput() {
    ::munmap(memory_, kMaxInput);
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  LastInput(const LastInput&) = delete;
  LastInput& operator=(const LastInput&) = delete;
  void run(const Bytes& input) {
    if (input.size() > kMaxInput) return;
    if (!input.empty()) std::memcpy(memory_, input.data(), input.size());
    if (::ftruncate(fd_, static_cast<off_t>(std::max<size_t>(input.size(), 1))) != 0) std::abort();
    const Bytes exact = input;  // so that AddressSanitizer sees a read beyond the end
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
    if (::ftruncate(fd_, kMaxInput) != 0) std::abort();
  }

 private:
  std::string path_;
  uint8_t* memory_ = nullptr;
  int fd_ = -1;
};

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  Bytes mutate(Bytes input, const Bytes& other) {
    for (size_t i = 1 + below(4); i > 0; --i) change(input, other);
    return input;
  }

 private:
  void change(Bytes& input, const Bytes& other) {
    const size_t at = below(input.size());
    const auto where = input.begin() + static_cast<ptrdiff_t>(at);
    switch (below(7)) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<uint8_t>(1U << below(8));
        break;
      case 1:
        if (!input.empty()) input[at] = kBytes[below(std::size(kBytes))];
        break;
      case 2:
        input.resize(at);
        break;
      case 3:
        input.insert(where, 1 + below(32), kBytes[below(std::size(kBytes))]);
        break;
      case 4: {
        const size_t bytes = below(std::min<size_t>(input.size() - at, 64) + 1);
        input.erase(where, where + static_cast<ptrdiff_t>(bytes));
        break;
      }
      case 5: {  // a number that parsers meet at their limits
        uint64_t number = uint64_t{1} << below(64);
        number += below(3) - 1;
        const size_t bytes = std::min<size_t>(size_t{1} << below(4), input.size() - at);
        std::memcpy(input.data() + at, &number, bytes);
        break;
      }
      default: {
        const size_t from = below(other.size());
        const size_t bytes = below(std::min<size_t>(other.size() - from, 256) + 1);
        const auto piece = other.begin() + static_cast<ptrdiff_t>(from);
        input.insert(where, piece, piece + static_cast<ptrdiff_t>(bytes));
      }
    }
    if (input.size() > kMaxInput) input.resize(kMaxInput);
  }

  static constexpr uint8_t kBytes[] = {0,   1,   0x7f, 0x80, 0xff, '"', '{', '}', '[',
                                       ']', ',', ':',  '=',  '\n', '0', '9', '-', 'e'};
  std::mt19937_64 random_;
};

int write_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  size_t count = 0;
  for (const Bytes& seed : hetccl::fuzz::seeds()) {
    std::ofstream file(folder / ("seed-" + std::to_string(count++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (given.size() == 2 && given[0] == "--write-seeds") return write_seeds(given[1]);
  if (given.empty()) return 2;
  double seconds = 1;
  uint64_t seed = 1;
  for (size_t i = 1; i + 1 < given.size(); i += 2) {
    if (given[i] == "--seconds") seconds = std::stod(given[i + 1]);
    if (given[i] == "--seed") seed = std::stoull(given[i + 1]);
  }

  std::vector<Bytes> corpus = hetccl::fuzz::seeds();
  if (fs::exists(given[0]))
    for (const auto& entry : fs::directory_iterator(given[0])) corpus.push_back(read(entry.path()));
  LastInput last("last-input-" + fs::path(arguments[0]).filename().string());
  for (const Bytes& input : corpus) last.run(input);
  Mutator mutator(seed);
  size_t runs = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (; runs % 16 != 0 || std::chrono::steady_clock::now() < end; ++runs)
    last.run(
        mutator.mutate(corpus[mutator.below(corpus.size())], corpus[mutator.below(corpus.size())]));
  std::printf("%zu inputs of the corpus, %zu mutations\n", corpus.size(), runs);
}
