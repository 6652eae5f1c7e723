// The functions of C that start, wait for and test requests.
#include "mpi/exports.h"
#include "mpi/job.h"
#include "mpi/waits.h"

namespace hetccl::mpi {
namespace {

Function wait("PMPI_Wait"), wait_all("PMPI_Waitall"), wait_any("PMPI_Waitany"),
    wait_some("PMPI_Waitsome"), test("PMPI_Test"), test_all("PMPI_Testall"),
    test_any("PMPI_Testany"), test_some("PMPI_Testsome"), get_status("PMPI_Request_get_status"),
    start("PMPI_Start"), start_all("PMPI_Startall"), request_free("PMPI_Request_free");

Caller caller(Function& function) {
  return [&function](const Words& words) { return function.call(words); };
}

const std::byte* place(Word array, int i) {
  return to_pointer<const std::byte>(array) + static_cast<size_t>(i) * mpi().abi.handle_bytes;
}

auto handles(Word array, int n) {
  return [array, n] {
    std::vector<Word> list;
    for (int i = 0; i < n; ++i) list.push_back(mpi().load_handle(place(array, i)));
    return list;
  };
}

}  // namespace

HETCCL_MPI_EXPORT MPI_Wait(Word request, Word status) {
  return wait_for(caller(wait), caller(test), Words(request, status), 1, handles(request, 1), true);
}

HETCCL_MPI_EXPORT MPI_Waitall(Word n, Word requests, Word statuses) {
  return wait_for(caller(wait_all), caller(test_all), Words(n, requests, statuses), 2,
                  handles(requests, to_int(n)), true);
}

HETCCL_MPI_EXPORT MPI_Waitany(Word n, Word requests, Word index, Word status) {
  return wait_for(caller(wait_any), caller(test_any), Words(n, requests, index, status), 3,
                  handles(requests, to_int(n)), false);
}

HETCCL_MPI_EXPORT MPI_Waitsome(Word n, Word requests, Word count, Word indices, Word statuses) {
  return wait_for_some(caller(wait_some), caller(test_some),
                       Words(n, requests, count, indices, statuses), to_pointer<const int>(count));
}

HETCCL_MPI_EXPORT MPI_Test(HETCCL_WORDS_3) {
  return test_for(caller(test), Words(HETCCL_NAMES_3));
}

HETCCL_MPI_EXPORT MPI_Testall(HETCCL_WORDS_4) {
  return test_for(caller(test_all), Words(HETCCL_NAMES_4));
}

HETCCL_MPI_EXPORT MPI_Testany(HETCCL_WORDS_5) {
  return test_for(caller(test_any), Words(HETCCL_NAMES_5));
}

HETCCL_MPI_EXPORT MPI_Testsome(HETCCL_WORDS_5) {
  return test_for(caller(test_some), Words(HETCCL_NAMES_5));
}

HETCCL_MPI_EXPORT MPI_Request_get_status(HETCCL_WORDS_3) {
  return test_for(caller(get_status), Words(HETCCL_NAMES_3));
}

HETCCL_MPI_EXPORT MPI_Start(Word request) {
  int code = 0;
  if (Job::get() != nullptr && start_request(mpi().load_handle(place(request, 0)), &code)) {
    return code;
  }
  return start.call(Words(request));
}

HETCCL_MPI_EXPORT MPI_Startall(Word n, Word requests) {
  if (Job::get() == nullptr) return start_all.call(Words(n, requests));
  for (int i = 0; i < to_int(n); ++i) {
    int code = 0;
    if (!start_request(mpi().load_handle(place(requests, i)), &code)) {
      code = start.call(Words(from_pointer(place(requests, i))));
    }
    if (code != 0) return code;
  }
  return 0;
}

HETCCL_MPI_EXPORT MPI_Request_free(Word request) {
  if (Job* job = Job::get())
    job->requests().forget_persistent(mpi().load_handle(place(request, 0)));
  return request_free.call(Words(request));
}

}  // namespace hetccl::mpi
