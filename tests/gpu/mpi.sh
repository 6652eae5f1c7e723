#!/usr/bin/env bash
# MPI programs with device memory, under the machine's own MPI: tests/gpu/mpi.sh FOLDER [hip], where
# FOLDER has the build; with "hip" those with memory of HIP, alone and beside CUDA's, over whatever
# libamdhip64.so.6 the environment names (tests/amd/forwarded). Each job ends within 90 s.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$1
for tool in mpicc mpirun; do
  command -v $tool >/dev/null || { echo "mpi.sh: NOT TESTED: no $tool here"; exit 0; }
done
mkdir -p "$folder/mpi"
for program in device values; do
  mpicc -O1 "tests/mpi/$program.c" -ldl -o "$folder/mpi/$program" 2>"$folder/mpi/$program.log" ||
    { cat "$folder/mpi/$program.log"; exit 1; }
done
echo '{"any": {"algorithm=mpi": {}}}' >"$folder/mpi/mpi.json"
echo '{"any": {"algorithm=device": {}}}' >"$folder/mpi/device.json"
echo '{"any": {"algorithm=device": {"streams=4": {}, "communicators=2": {}}}}' >"$folder/mpi/parts.json"
echo '{"any": {"composition=alpha": {}}}' >"$folder/mpi/alpha.json"
on_gpu=${HETCCL_TEST_GPU:-}
unset HETCCL_TEST_NVRTC HETCCL_TEST_GPU
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HETCCL_MPI_SUMMARY=1
preload=$PWD/$folder/compat/mpi/libhetccl_mpi.so
failed=0
# job RANKS RULES PROGRAM...; with NODES=1, two ranks are a node.
as_nodes='export HETCCL_HOSTID=node$((OMPI_COMM_WORLD_RANK / 2)); exec "$0" "$@"'
job() {
  local ranks=$1 rules=$2 start=$SECONDS status
  shift 2
  timeout --kill-after=5 90 mpirun --oversubscribe -n "$ranks" -x LD_PRELOAD="$preload" \
    -x HETCCL_MPI_FILE="$folder/mpi/$rules.json" ${NODES:+bash -c "$as_nodes"} \
    "$folder/mpi/$1" "${@:2}" >"$folder/mpi/log" 2>&1
  status=$?
  echo "mpi: $ranks ranks, $rules, $*: status $status, $((SECONDS - start)) s: $(grep '^ok' "$folder/mpi/log")"
  ((status == 0)) && return
  failed=1
  tail -25 "$folder/mpi/log"
}
if [[ ${2:-} == hip ]]; then
  export EXPECT_DEVICE_MEMORY=1
  job 2 device device r # the first compiles the kernels
  for kinds in n dr rh "dr+" "drh+"; do job 2 device device "$kinds"; done
  job 4 device device drdr
  job 4 device device drhm
  job 2 mpi device dr # from copies
  job 2 parts device dr
  NODES=1 job 4 device device ddrr # two hosts, of one vendor each
  exit $failed
fi
if [[ $on_gpu == 1 ]]; then
  for kinds in d m dh dh+ dmh+; do job 2 device device $kinds; done
  job 4 device device dhhd
  job 4 device device d  # GPUs that ranks share
  job 4 device device dh+
  job 2 mpi device d
  job 4 mpi device dh+
  job 2 parts device d
  job 2 parts device dh+
  NODES=1 job 4 alpha device d
fi
job 2 device device h
job 4 device values
exit $failed
