// A HIP runtime that tells its copy, for tests of whose runtime RCCL calls.
extern "C" int hipGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}
extern "C" const char* fake_hip_name() {
  return FAKE_HIP_NAME;
}
