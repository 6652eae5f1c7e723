// The function that `hetccl tune --mpi` calls in each rank of a job.
#include <string>

#include "base/json.h"
#include "mpi/answer.h"
#include "mpi/measure.h"

namespace hetccl::mpi {
namespace {

Function mpi_init("PMPI_Init");

Result<MeasureOptions> read(const char* text) {
  HETCCL_ASSIGN(const Json json, Json::parse(text, "what to measure", size_t{1} << 16U));
  MeasureOptions options;
  for (size_t i = 0; i < json["collectives"].size(); ++i) {
    const std::string* name = json["collectives"][i].text();
    const auto collective = name == nullptr ? std::nullopt : collective_of(*name);
    if (!collective) return error(ErrorCode::InvalidArgument, "collectives: no such collective");
    options.collectives.push_back(*collective);
  }
  for (size_t i = 0; i < json["bytes"].size(); ++i) {
    const auto bytes = json["bytes"][i].integer(4, int64_t{1} << 30);
    if (!bytes) return error(ErrorCode::InvalidArgument, "bytes: 4 to 1 GiB");
    options.bytes.push_back(*bytes / 4 * 4);
  }
  options.gpu = static_cast<int>(json["gpu"].integer(-1, 1024).value_or(-1));
  options.seconds = json["seconds"].number().value_or(options.seconds);
  return options;
}

Result<Json> measure_in_job(const char* text) {
  HETCCL_ASSIGN(const MeasureOptions options, read(text));
  Library* loaded = Library::get();
  if (loaded == nullptr) return error(ErrorCode::Unsupported, "no MPI is loaded");
  if (Job::get() == nullptr && mpi_init.call(Words(0, 0)) == 0) Job::start(*loaded);
  Job* job = Job::get();
  if (job == nullptr) {
    return error(ErrorCode::InvalidUsage,
                 "hetccl serves nothing here: start two ranks or more with the MPI's launcher");
  }
  const Library& library = job->library();
  HETCCL_ASSIGN(Json rows, measure(*job, options));
  const int size = library.size(library.comm_world);
  const size_t maker = static_cast<size_t>(library.maker);
  return Json{{"rank", library.rank(library.comm_world)},
              {"ranks", size},
              {"nodes", job->shape_of(library.comm_world, size)->nodes},
              {"mpi", maker < kMakers.size() ? kMakers[maker] : "other"},
              {"points", std::move(rows)}};
}

}  // namespace

// Initialises the MPI, which the process has loaded, and measures. `options` is JSON:
// {"collectives", "bytes", "gpu", "seconds"}. Returns 0 with the result as JSON, or 1 with the
// error, in `*answer`, which is valid until this thread's next call.
extern "C" __attribute__((visibility("default"))) int hetcclMpiMeasure(const char* options,
                                                                       const char** answer) {
  return answer_with([&] { return measure_in_job(options); }, answer);
}

}  // namespace hetccl::mpi
