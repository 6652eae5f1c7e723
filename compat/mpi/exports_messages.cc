// C functions for messages whose buffers are in device memory, under an MPI that does not accept
// it.
#include <initializer_list>
#include <limits>

#include "mpi/exports.h"
#include "mpi/guard.h"
#include "mpi/job.h"
#include "mpi/staging.h"

namespace hetccl::mpi {
namespace {

enum class Way { Send, Receive };

// A message function with its plain and its large-count form. An MPI may lack the latter; programs
// that look for it find this library's.
struct MessageFunction {
  Function plain, large;
  Way way;
  bool has_request;

  // `counts` are the indices of the words that are counts, `comm` that of the communicator.
  int call(const Words& words, bool is_large, std::initializer_list<size_t> counts, size_t comm) {
    if (!is_large || large.address() != nullptr) return (is_large ? large : plain).call(words);
    for (const size_t place : counts) {
      const auto count = static_cast<int64_t>(words.word[place]);
      if (count > std::numeric_limits<int>::max()) {
        return mpi().raise(mpi().handle(words.word[comm]), mpi().abi.err_count);
      }
    }
    return plain.call(words);
  }
};

int64_t count_of(Word word, bool is_large) {
  return is_large ? static_cast<int64_t>(word) : to_int(word);
}

bool stages(Word buffer) {
  return Job::get() != nullptr && needs_host_copy(buffer, mpi());
}

// Copies the device buffer to the host, a receive buffer too: a message shorter than the buffer
// leaves the rest unchanged.
Result<HostCopy> copy_of(Word buffer, int64_t count, Word type) {
  const Block block{0, count, 0};
  return HostCopy::make(buffer, span_of(block, mpi().handle(type), mpi()), true);
}

int fail(Word comm, const Status& status) {
  const Library& library = mpi();
  return library.raise(library.handle(comm), library.error_code(status.message()));
}

// MPI_Send and its kin. Words: buf, count, datatype, rank, tag, comm, and the rest.
int pass(MessageFunction& function, Words words, bool is_large) {
  const auto call = [&] { return function.call(words, is_large, {1}, 5); };
  if (!stages(words.word[0])) return call();
  const Word comm = words.word[5];
  auto copy = copy_of(words.word[0], count_of(words.word[1], is_large), words.word[2]);
  if (!copy.ok()) return fail(comm, copy.status());
  words.word[0] = copy->buffer();
  const bool receives = function.way == Way::Receive;
  if (!function.has_request) {
    const int code = call();
    if (code != 0 || !receives) return code;
    const Status status = copy->copy_back();
    return status.ok() ? 0 : fail(comm, status);
  }
  const Word place = words.word[words.size - 1];
  std::optional<HostCopy> sent, received;
  (receives ? received : sent) = std::move(copy).value();
  auto work = std::make_unique<StagedWork>(mpi(), std::move(sent), std::move(received));
  words.word[words.size - 1] = from_pointer(work->request());
  if (const int code = call()) return code;
  return Job::get()->requests().add(std::move(work), mpi().handle(comm), to_pointer<void>(place));
}

// MPI_Sendrecv. Words: sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
// source, recvtag, comm, status.
int pass_both(MessageFunction& function, Words words, bool is_large) {
  std::optional<HostCopy> sent, received;
  for (auto [first, copy] : {std::pair{size_t{0}, &sent}, std::pair{size_t{5}, &received}}) {
    if (!stages(words.word[first])) continue;
    auto made = copy_of(words.word[first], count_of(words.word[first + 1], is_large),
                        words.word[first + 2]);
    if (!made.ok()) return fail(words.word[10], made.status());
    words.word[first] = made->buffer();
    *copy = std::move(made).value();
  }
  const int code = function.call(words, is_large, {1, 6}, 10);
  if (code != 0 || !received) return code;
  const Status status = received->copy_back();
  return status.ok() ? 0 : fail(words.word[10], status);
}

int pass_on(int (*pass)(MessageFunction&, Words, bool), MessageFunction& function,
            const Words& words, bool is_large) {
  return guarded([&] { return pass(function, words, is_large); });
}

}  // namespace

#define HETCCL_MPI_MESSAGE(name, n, way, has_request, pass)                               \
  namespace {                                                                             \
  MessageFunction function_##name{Function("PMPI_" #name), Function("PMPI_" #name, "_c"), \
                                  Way::way, has_request};                                 \
  }                                                                                       \
  HETCCL_MPI_EXPORT MPI_##name(HETCCL_WORDS_##n) {                                        \
    return pass_on(pass, function_##name, Words(HETCCL_NAMES_##n), false);                \
  }                                                                                       \
  HETCCL_MPI_EXPORT MPI_##name##_c(HETCCL_WORDS_##n) {                                    \
    return pass_on(pass, function_##name, Words(HETCCL_NAMES_##n), true);                 \
  }

HETCCL_MPI_MESSAGE(Send, 6, Send, false, pass)
HETCCL_MPI_MESSAGE(Ssend, 6, Send, false, pass)
HETCCL_MPI_MESSAGE(Rsend, 6, Send, false, pass)
HETCCL_MPI_MESSAGE(Isend, 7, Send, true, pass)
HETCCL_MPI_MESSAGE(Issend, 7, Send, true, pass)
HETCCL_MPI_MESSAGE(Irsend, 7, Send, true, pass)
HETCCL_MPI_MESSAGE(Recv, 7, Receive, false, pass)
HETCCL_MPI_MESSAGE(Irecv, 7, Receive, true, pass)
HETCCL_MPI_MESSAGE(Sendrecv, 12, Receive, false, pass_both)

}  // namespace hetccl::mpi
