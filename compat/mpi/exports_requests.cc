// The C functions that start, wait for and test requests.
#include "mpi/exports.h"
#include "mpi/guard.h"
#include "mpi/job.h"
#include "mpi/waits.h"

namespace hetccl::mpi {
namespace {

Function wait("PMPI_Wait"), wait_all("PMPI_Waitall"), wait_any("PMPI_Waitany"),
    wait_some("PMPI_Waitsome"), test("PMPI_Test"), test_all("PMPI_Testall"),
    test_any("PMPI_Testany"), test_some("PMPI_Testsome"), get_status("PMPI_Request_get_status"),
    get_status_all("PMPI_Request_get_status_all"), get_status_any("PMPI_Request_get_status_any"),
    get_status_some("PMPI_Request_get_status_some"), start("PMPI_Start"),
    start_all("PMPI_Startall"), request_free("PMPI_Request_free");

Caller caller(Function& function) {
  return [&function](const Words& words) { return function.call(words); };
}

const std::byte* place(Word array, int i) {
  return to_pointer<const std::byte>(array) + static_cast<size_t>(i) * mpi().abi.handle_bytes;
}

bool c_ignores(Word statuses) {
  return statuses == mpi().abi.status_ignore;
}

constexpr Language kC = {
    to_int, [](Word array, int i) { return mpi().load_handle(place(array, i)); }, c_ignores, 0};
// MPI_Request_get_status takes the handle by value.
constexpr Language kCByValue = {to_int, [](Word request, int) { return mpi().handle(request); },
                                c_ignores, 0};

// `tester` is the MPI's test for functions that wait for some of their requests.
int wait_c(Which which, Function& waiter, const Words& words, Function* tester = nullptr) {
  return guarded([&] {
    return wait_for(kC, which, caller(waiter), tester != nullptr ? caller(*tester) : Caller(),
                    words);
  });
}

int test_c(Which which, Function& tester, const Words& words) {
  return guarded([&] { return test_for(kC, which, caller(tester), words); });
}

// MPI 4.1's status functions for several requests, for an MPI that lacks them: programs that look
// for them find this library's. An inactive persistent request counts as complete.
class StatusOfEach {
 public:
  StatusOfEach(Word requests, int n, Word statuses)
      : requests_(requests), n_(n), statuses_(statuses) {}

  /// Tests request i and writes its status at index `to`. Returns whether it is active and
  /// complete.
  bool look(int i, int to) {
    if (handle(i) == mpi().request_null) return false;
    ++active_;
    return is_complete(handle(i), to);
  }
  /// MPI_REQUEST_NULL is complete, with an empty status.
  bool is_complete(Word handle, int to) {
    int flag = 0;
    const bool wanted = statuses_ != mpi().abi.status_ignore;
    const Word status = statuses_ + (wanted ? static_cast<Word>(to) * mpi().abi.status_bytes : 0);
    // Clears the error, which Open MPI's function for one request leaves as it was.
    if (wanted && handle == mpi().request_null) {
      *to_pointer<int>(status + mpi().abi.status_error) = 0;
    }
    const int code = get_status.call(Words(handle, from_pointer(&flag), status));
    if (code != 0) code_ = code;
    return flag != 0;
  }
  [[nodiscard]] Word handle(int i) const { return mpi().load_handle(place(requests_, i)); }
  [[nodiscard]] int n() const { return n_; }
  [[nodiscard]] int active() const { return active_; }
  [[nodiscard]] int code() const { return code_; }

 private:
  const Word requests_;
  const int n_;
  const Word statuses_;
  int active_ = 0, code_ = 0;
};

int status_of_all(StatusOfEach each, int* flag) {
  *flag = 1;
  for (int i = 0; i < each.n(); ++i) {
    if (!each.is_complete(each.handle(i), i)) *flag = 0;
  }
  return each.code();
}

int status_of_any(StatusOfEach each, int* index, int* flag) {
  *index = mpi().abi.undefined;
  for (int i = 0; i < each.n(); ++i) {
    if (!each.look(i, 0)) continue;
    *index = i, *flag = 1;
    return each.code();
  }
  *flag = each.active() == 0 && each.is_complete(mpi().request_null, 0) ? 1 : 0;
  return each.code();
}

int status_of_some(StatusOfEach each, int* count, int* indices) {
  *count = 0;
  for (int i = 0; i < each.n(); ++i) {
    if (each.look(i, *count)) indices[(*count)++] = i;
  }
  if (each.active() == 0) *count = mpi().abi.undefined;
  return each.code();
}

int start_at(Word requests, int i) {
  int code = 0;
  if (Job::get() != nullptr && start_request(mpi().load_handle(place(requests, i)), &code)) {
    return code;
  }
  return start.call(Words(from_pointer(place(requests, i))));
}

// Calls the MPI's function, or `ours` if the MPI has none.
int get_status_c(Which which, Function& function, const Words& words,
                 const std::function<int()>& ours) {
  return guarded([&] {
    const auto look = [&](const Words& all) {
      return function.address() != nullptr ? function.call(all) : ours();
    };
    return test_for(which == Which::One ? kCByValue : kC, which, look, words, true);
  });
}

}  // namespace

HETCCL_MPI_EXPORT MPI_Wait(HETCCL_WORDS_2) {
  return wait_c(Which::One, wait, Words(HETCCL_NAMES_2));
}

HETCCL_MPI_EXPORT MPI_Waitall(HETCCL_WORDS_3) {
  return wait_c(Which::All, wait_all, Words(HETCCL_NAMES_3));
}

HETCCL_MPI_EXPORT MPI_Waitany(HETCCL_WORDS_4) {
  return wait_c(Which::Any, wait_any, Words(HETCCL_NAMES_4), &test_any);
}

HETCCL_MPI_EXPORT MPI_Waitsome(HETCCL_WORDS_5) {
  return wait_c(Which::Some, wait_some, Words(HETCCL_NAMES_5), &test_some);
}

HETCCL_MPI_EXPORT MPI_Test(HETCCL_WORDS_3) {
  return test_c(Which::One, test, Words(HETCCL_NAMES_3));
}

HETCCL_MPI_EXPORT MPI_Testall(HETCCL_WORDS_4) {
  return test_c(Which::All, test_all, Words(HETCCL_NAMES_4));
}

HETCCL_MPI_EXPORT MPI_Testany(HETCCL_WORDS_5) {
  return test_c(Which::Any, test_any, Words(HETCCL_NAMES_5));
}

HETCCL_MPI_EXPORT MPI_Testsome(HETCCL_WORDS_5) {
  return test_c(Which::Some, test_some, Words(HETCCL_NAMES_5));
}

HETCCL_MPI_EXPORT MPI_Request_get_status(HETCCL_WORDS_3) {
  return get_status_c(Which::One, get_status, Words(HETCCL_NAMES_3), {});
}

HETCCL_MPI_EXPORT MPI_Request_get_status_all(Word n, Word requests, Word flag, Word statuses) {
  return get_status_c(Which::All, get_status_all, Words(n, requests, flag, statuses), [&] {
    return status_of_all({requests, to_int(n), statuses}, to_pointer<int>(flag));
  });
}

HETCCL_MPI_EXPORT MPI_Request_get_status_any(Word n, Word requests, Word index, Word flag,
                                             Word status) {
  return get_status_c(Which::Any, get_status_any, Words(n, requests, index, flag, status), [&] {
    return status_of_any({requests, to_int(n), status}, to_pointer<int>(index),
                         to_pointer<int>(flag));
  });
}

HETCCL_MPI_EXPORT MPI_Request_get_status_some(Word n, Word requests, Word count, Word indices,
                                              Word statuses) {
  return get_status_c(Which::Some, get_status_some, Words(n, requests, count, indices, statuses),
                      [&] {
                        return status_of_some({requests, to_int(n), statuses},
                                              to_pointer<int>(count), to_pointer<int>(indices));
                      });
}

HETCCL_MPI_EXPORT MPI_Start(Word request) {
  return guarded([&] { return start_at(request, 0); });
}

HETCCL_MPI_EXPORT MPI_Startall(Word n, Word requests) {
  return guarded([&] {
    if (Job::get() == nullptr) return start_all.call(Words(n, requests));
    for (int i = 0; i < to_int(n); ++i) {
      if (const int code = start_at(requests, i)) return code;
    }
    return 0;
  });
}

HETCCL_MPI_EXPORT MPI_Request_free(Word request) {
  return guarded([&] {
    Job* job = Job::get();
    if (job != nullptr) job->requests().forget_persistent(mpi().load_handle(place(request, 0)));
    return request_free.call(Words(request));
  });
}

}  // namespace hetccl::mpi
