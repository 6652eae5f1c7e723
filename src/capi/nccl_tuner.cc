// Tables that NCCL and RCCL look up in libhetccl.so: it is their tuner plug-in for hetccl's own
// communicators (ccl/nccl/tuner_plugin.h).
#include "ccl/nccl/tuner_plugin.h"

namespace {

namespace tuner = hetccl::ccl::nccl::tuner;
using namespace hetccl::nccl_tuner;
constexpr const char* kName = "hetccl, for its own communicators";

}  // namespace

extern "C" {

[[gnu::visibility("default")]] extern const TunerV3 ncclTunerPlugin_v3 = {
    kName, tuner::init, tuner::choose_v3, tuner::finish};
[[gnu::visibility("default")]] extern const TunerV4 ncclTunerPlugin_v4 = {
    kName, tuner::init, tuner::choose_v4, tuner::finish};
[[gnu::visibility("default")]] extern const TunerV5 ncclTunerPlugin_v5 = {
    kName, tuner::init_v5, tuner::choose_v4, tuner::finish};
}
