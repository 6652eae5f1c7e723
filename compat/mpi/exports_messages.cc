// Messages of C whose buffers lie in device memory, for an MPI that takes none.
#include "mpi/exports.h"
#include "mpi/job.h"
#include "mpi/staging.h"

namespace hetccl::mpi {
namespace {

enum class Way { Send, Receive };

// MPI_Send and its kin: buf, count, datatype, rank, tag, comm, and what else there is.
struct Message {
  Function function;
  Way way;
  bool has_request;
};

bool stages(Word buffer) {
  return Job::get() != nullptr && needs_host_copy(buffer, mpi());
}

// Of what is received, too: a shorter message leaves the rest as it is.
Result<HostCopy> copy_of(Word buffer, Word count, Word type) {
  const Block block{0, to_int(count), 0};
  return HostCopy::make(buffer, span_of(block, mpi().handle(type), mpi()), true);
}

int fail(Word comm, const Status& status) {
  const Library& library = mpi();
  return library.raise(library.handle(comm), library.error_code(status.message()));
}

int pass(Message& message, Words words) {
  if (!stages(words.word[0])) return message.function.call(words);
  const Word comm = words.word[5];
  auto copy = copy_of(words.word[0], words.word[1], words.word[2]);
  if (!copy.ok()) return fail(comm, copy.status());
  words.word[0] = copy->buffer();
  const bool receives = message.way == Way::Receive;
  if (!message.has_request) {
    const int code = message.function.call(words);
    if (code != 0 || !receives) return code;
    const Status status = copy->copy_back();
    return status.ok() ? 0 : fail(comm, status);
  }
  const Word place = words.word[words.size - 1];
  std::optional<HostCopy> sent, received;
  (receives ? received : sent) = std::move(copy).value();
  auto work = std::make_unique<StagedWork>(mpi(), std::move(sent), std::move(received));
  words.word[words.size - 1] = from_pointer(work->request());
  const int code = message.function.call(words);
  if (code != 0) return code;
  return Job::get()->requests().add(std::move(work), mpi().handle(comm), to_pointer<void>(place));
}

Function sendrecv("PMPI_Sendrecv");

}  // namespace

#define HETCCL_MPI_MESSAGE(name, n, way, has_request)                       \
  HETCCL_MPI_EXPORT MPI_##name(HETCCL_WORDS_##n) {                          \
    static Message message{Function("PMPI_" #name), Way::way, has_request}; \
    return pass(message, Words(HETCCL_NAMES_##n));                          \
  }

HETCCL_MPI_MESSAGE(Send, 6, Send, false)
HETCCL_MPI_MESSAGE(Ssend, 6, Send, false)
HETCCL_MPI_MESSAGE(Rsend, 6, Send, false)
HETCCL_MPI_MESSAGE(Isend, 7, Send, true)
HETCCL_MPI_MESSAGE(Issend, 7, Send, true)
HETCCL_MPI_MESSAGE(Irsend, 7, Send, true)
HETCCL_MPI_MESSAGE(Recv, 7, Receive, false)
HETCCL_MPI_MESSAGE(Irecv, 7, Receive, true)

// sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, comm,
// status.
HETCCL_MPI_EXPORT MPI_Sendrecv(HETCCL_WORDS_12) {
  Words words(HETCCL_NAMES_12);
  std::optional<HostCopy> sent, received;
  for (auto [first, copy] : {std::pair{size_t{0}, &sent}, std::pair{size_t{5}, &received}}) {
    if (!stages(words.word[first])) continue;
    auto made = copy_of(words.word[first], words.word[first + 1], words.word[first + 2]);
    if (!made.ok()) return fail(words.word[10], made.status());
    words.word[first] = made->buffer();
    *copy = std::move(made).value();
  }
  const int code = sendrecv.call(words);
  if (code != 0 || !received) return code;
  const Status status = received->copy_back();
  return status.ok() ? 0 : fail(words.word[10], status);
}

}  // namespace hetccl::mpi
