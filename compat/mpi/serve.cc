#include "mpi/serve.h"

#include <limits>
#include <mutex>
#include <string>

#include "mpi/communicator.h"
#include "mpi/guard.h"
#include "mpi/job.h"
#include "mpi/staging.h"

namespace hetccl::mpi {
namespace {

// Number of parts that a call is cut into: only all-reduces are cut.
size_t parts_of(const MpiCall& call, const Routing& routing) {
  return call.collective == Collective::Allreduce ? static_cast<size_t>(routing.decision.streams)
                                                  : 1;
}

Result<std::unique_ptr<ExchangeWork>> begin(const MpiCall& call, const Routing& routing,
                                            Communicator& comm, const Library& library) {
  auto& endpoints = *routing.endpoints;
  HETCCL_ASSIGN(auto exchange, Exchange::prepare(call, comm.size(), comm.rank(),
                                                 endpoints.front()->place(), library));
  auto work = std::make_unique<ExchangeWork>(comm.shared_from_this(), std::move(exchange));
  const size_t parts = parts_of(call, routing);
  const auto n = static_cast<size_t>(routing.decision.communicators);
  for (size_t part = 0; part < parts; ++part) {
    HETCCL_TRY(work->start(*endpoints[part % n], part, parts));
  }
  return work;
}

Status run(const MpiCall& call, const Routing& routing, Communicator& comm,
           const Library& library) {
  Endpoint& endpoint = *routing.endpoints->front();
  if (parts_of(call, routing) > 1 || !endpoint.place().on_host()) {
    HETCCL_ASSIGN(auto work, begin(call, routing, comm, library));
    HETCCL_TRY(work->wait());
    return work->finish();
  }
  // The calling thread drives the call: faster than any stream.
  HETCCL_ASSIGN(auto exchange,
                Exchange::prepare(call, comm.size(), comm.rank(), endpoint.place(), library));
  HETCCL_TRY(endpoint.run(*exchange));
  return exchange->deliver();
}

// Logs an error once, since a program may repeat a call that fails.
void log_failure(const MpiCall& call, const Status& status, const Job& job) {
  static std::mutex mutex;
  static std::string last;
  const std::lock_guard lock(mutex);
  const std::string text = std::string(name_of(call.collective)) + ": " + status.message();
  if (text != last) job.log().error("MPI %s", text.c_str());
  last = text;
}

int fail(const MpiCall& call, const Status& status, const Job& job) {
  log_failure(call, status, job);
  return job.library().raise(call.comm, job.library().error_code(status.message()));
}

int serve_by_mpi(const MpiCall& call, const Routing& routing, Communicator& comm, Job& job);

int serve_by_hetccl(const MpiCall& call, const Routing& routing, Communicator& comm, Job& job) {
  const Library& library = job.library();
  if (has_negative_count(call, comm.size(), comm.rank())) {
    return library.raise(call.comm, library.abi.err_count);
  }
  switch (call.form) {
    case Form::Blocking: {
      const InsideCall inside;
      const Status status = run(call, routing, comm, library);
      return status.ok() ? 0 : fail(call, status, job);
    }
    case Form::Nonblocking: {
      auto work = begin(call, routing, comm, library);
      if (!work.ok()) return fail(call, work.status(), job);
      return job.requests().add(std::move(work).value(), call.comm, call.request);
    }
    case Form::Persistent:
      break;
  }
  // The program may start persistent calls in any order, but one endpoint needs the same order on
  // all ranks. So each call gets its own endpoint.
  Endpoint* endpoint = comm.reserve(routing);
  if (endpoint == nullptr) return serve_by_mpi(call, routing, comm, job);
  return job.requests().add_persistent(
      std::make_unique<PersistentExchange>(call, comm.shared_from_this(), endpoint, library),
      call.comm, call.request);
}

// Whether Alpha serves the call. It is made of blocking calls whose counts fit an int.
bool is_composed(const MpiCall& call, const Routing& routing) {
  return routing.decision.algorithm == Algorithm::Alpha && routing.reason == Reason::Rule &&
         call.form == Form::Blocking && Composition::applies(call.collective) &&
         routing.volume.average <= std::numeric_limits<int>::max();
}

int serve_staged(std::shared_ptr<StagedCall> staged, const MpiCall& call, const Routing& routing,
                 Communicator& comm, Job& job) {
  const Library& library = job.library();
  const MpiCall& copied = staged->call();
  const int code = is_composed(call, routing) ? comm.composition().run(copied) : call_mpi(copied);
  if (code != 0) return code;
  switch (call.form) {
    case Form::Nonblocking:
      return job.requests().add(std::make_unique<StagedWork>(library, std::move(staged)), call.comm,
                                call.request);
    case Form::Persistent:
      return job.requests().add_persistent(
          std::make_unique<StagedPersistent>(library, std::move(staged)), call.comm, call.request);
    case Form::Blocking:
      break;
  }
  const Status status = staged->deliver();
  return status.ok() ? 0 : fail(call, status, job);
}

int serve_by_mpi(const MpiCall& call, const Routing& routing, Communicator& comm, Job& job) {
  if (call.collective != Collective::Barrier) {
    auto staged = StagedCall::make(call, job.library());
    if (!staged.ok()) return fail(call, staged.status(), job);
    if (staged.value() != nullptr) {
      return serve_staged(std::move(staged).value(), call, routing, comm, job);
    }
  }
  return is_composed(call, routing) ? comm.composition().run(call) : call_mpi(call);
}

int serve_read(const MpiCall& call) {
  Job* job = Job::get();
  if (job == nullptr) return call_mpi(call);
  Summary::Timer timer(job->summary(), call);
  Communicator* comm = Communicator::find(call.comm, *job);
  if (!comm->enter()) {
    timer.served(Reason::Concurrent, 0);
    return call_mpi(call);
  }
  struct Leave {
    Communicator* comm;
    ~Leave() { comm->leave(); }
  } const leave{comm};
  const Routing routing = comm->route(call);
  timer.served(is_composed(call, routing) ? Reason::Leaders : routing.reason,
               routing.volume.average);
  if (routing.reason == Reason::Hetccl) return serve_by_hetccl(call, routing, *comm, *job);
  return serve_by_mpi(call, routing, *comm, *job);
}

}  // namespace

int serve(MpiCall call) noexcept {
  const int code = guarded([&] {
    read_arguments(call, *Library::get());
    return 0;
  });
  return code != 0 ? code : guarded([&] { return serve_read(call); }, call.comm);
}

}  // namespace hetccl::mpi
