// A library with RCCL's symbols (nccl_so.cc's) that calls the HIP runtime it is linked with.
extern "C" const char* fake_hip_name();

extern "C" const char* fake_rccl_hip() {
  return fake_hip_name();
}
