#include "mpi/requests.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "mpi/guard.h"

namespace hetccl::mpi {
namespace {

Function grequest_start("PMPI_Grequest_start"), grequest_complete("PMPI_Grequest_complete"),
    set_elements("PMPI_Status_set_elements"), set_elements_x("PMPI_Status_set_elements_x"),
    set_cancelled("PMPI_Status_set_cancelled"), recv_init("PMPI_Recv_init"),
    start_receive("PMPI_Start"), comm_dup("PMPI_Comm_dup");

template <typename F>
Word address(F* function) {
  return from_pointer(reinterpret_cast<void*>(function));
}

}  // namespace

void Requests::open() {
  Word made = 0;
  comm_dup.call(Words(library_.comm_self, from_pointer(&made)));
  self_ = library_.load_handle(&made);
}

int Requests::finish(int64_t timeout_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (any_pending() && std::chrono::steady_clock::now() < end) advance();
  if (any_pending()) return pending_;
  persistent_.clear();
  library_.free_comm(&self_);
  return 0;
}

void Requests::push(std::unique_ptr<Pending> pending) {
  list_.push_back(std::move(pending));
  pending_.fetch_add(1, std::memory_order_release);
}

int Requests::add(std::unique_ptr<Work> work, Word comm, void* place) {
  auto pending = std::make_unique<Pending>(std::move(work), comm);
  Word request = 0;
  const int code = grequest_start.call(Words(address(query), address(free_state), address(cancel),
                                             from_pointer(pending.get()), from_pointer(&request)));
  if (code != 0) return code;
  pending->request = library_.load_handle(&request);
  library_.store_handle(place, pending->request);
  outcomes::add(pending->request, pending->outcome);
  const std::lock_guard lock(mutex_);
  push(std::move(pending));
  return 0;
}

int Requests::add_persistent(std::unique_ptr<PersistentCall> call, Word comm, void* place) {
  const std::lock_guard lock(mutex_);
  const int tag = free_tags_.empty() ? ++tags_ : free_tags_.back();
  Word request = 0;
  const int code =
      recv_init.call(Words(0, 0, library_.byte(), 0, from_int(tag), self_, from_pointer(&request)));
  if (code != 0) return code;
  request = library_.load_handle(&request);
  if (!free_tags_.empty()) free_tags_.pop_back();
  library_.store_handle(place, request);
  auto outcome = std::make_shared<Outcome>();
  outcomes::add(request, outcome);
  persistent_[request] = Persistent{std::move(call), comm, tag, std::move(outcome)};
  return 0;
}

bool Requests::start_persistent(Word request, int* code) {
  const std::lock_guard lock(mutex_);
  const auto place = persistent_.find(request);
  if (place == persistent_.end()) return false;
  const Persistent& self = place->second;
  *code = start_receive.call(Words(from_pointer(&request)));
  if (*code != 0) return true;
  auto work = self.call->begin();
  auto pending = std::make_unique<Pending>(nullptr, self.comm, request, self.tag, work.status());
  if (work.ok()) pending->work = std::move(work).value();
  pending->outcome = self.outcome;
  pending->outcome->code = 0;
  push(std::move(pending));
  return true;
}

void Requests::forget_persistent(Word request) {
  const std::lock_guard lock(mutex_);
  const auto place = persistent_.find(request);
  if (place == persistent_.end()) return;
  free_tags_.push_back(place->second.tag);
  outcomes::forget(request, place->second.outcome.get());
  persistent_.erase(place);
}

void Requests::advance() {
  if (!any_pending()) return;
  std::vector<std::unique_ptr<Pending>> done;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;  // another thread is in here and does it
    for (auto place = list_.begin(); place != list_.end();) {
      Pending& pending = **place;
      if (pending.work != nullptr && pending.cancel.exchange(false)) pending.work->cancel();
      if (pending.work != nullptr && !pending.work->is_done()) {
        ++place;
        continue;
      }
      done.push_back(std::move(*place));
      place = list_.erase(place);
    }
  }
  for (auto& pending : done) {
    complete(*pending);
    // The MPI's callback and this function both let go of the state; the later one frees it.
    if (pending->tag == 0 && !pending->left_by_one.exchange(true))
      static_cast<void>(pending.release());
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

// The MPI has no place for the error: a generalized request has no communicator, and a receive has
// only errors of its own. So the wait or test takes the code from the outcome. The communicator's
// error handler is called here, since the program may never wait or test.
void Requests::complete(Pending& pending) {
  if (pending.work != nullptr) {
    pending.status = pending.work->finish();
    pending.received = pending.work->received();
  }
  pending.work.reset();
  if (!pending.status.ok()) {
    pending.outcome->code =
        library_.raise(pending.comm, library_.error_code(pending.status.message()));
  }
  if (pending.tag != 0) {
    library_.send(nullptr, 0, 0, pending.tag, self_);
  } else if (!pending.freed) {
    grequest_complete.call(Words(pending.request));
  }
}

bool Requests::await(Word request) {
  {
    const std::lock_guard lock(mutex_);
    const auto place = std::find_if(list_.begin(), list_.end(), [&](const auto& pending) {
      return pending->request == request;
    });
    if (place == list_.end()) return false;
    if ((*place)->work != nullptr) (*place)->work->wait_briefly();
  }
  library_.progress();
  return true;
}

int Requests::query(void* state, void* status) {
  return guarded([&] { return describe(*static_cast<const Pending*>(state), status); });
}

int Requests::describe(const Pending& pending, void* status) {
  const Library& library = mpi();
  const Received received =
      pending.received.value_or(Received{library.abi.undefined, library.abi.undefined, 0, false});
  Function& set = set_elements_x.address() != nullptr ? set_elements_x : set_elements;
  set.call(Words(from_pointer(status), library.byte(), from_int(received.bytes)));
  set_cancelled.call(Words(from_pointer(status), received.cancelled ? 1 : 0));
  auto* bytes = static_cast<std::byte*>(status);
  std::memcpy(bytes + library.abi.status_source, &received.source, sizeof(int));
  std::memcpy(bytes + library.abi.status_tag, &received.tag, sizeof(int));
  return 0;
}

// MPICH 3 and 4 call this in MPI_Request_free even if the request is not complete.
int Requests::free_state(void* state) {
  auto* pending = static_cast<Pending*>(state);
  outcomes::forget(pending->request, pending->outcome.get());
  pending->freed = true;
  if (pending->left_by_one.exchange(true)) delete pending;
  return 0;
}

// Takes no lock: the MPI may hold one that a thread in `advance` waits for.
int Requests::cancel(void* state, int complete) {
  if (complete == 0) static_cast<Pending*>(state)->cancel = true;
  return 0;
}

}  // namespace hetccl::mpi
