"""MPI programs that preload libhetccl_mpi.so, under real MPIs, from C and Fortran."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import commands
import mpi_jobs
import pytest
from compiled import ROOT
from mpi_jobs import (
    BY_HETCCL,
    BY_LEADERS,
    BY_MPI,
    DEBIAN_KEEPS_ROOT,
    IN_PARTS,
    MPIS,
    PROGRAMS,
    YIELDING,
    Mpi,
    Ran,
    launch,
    need,
    run,
    with_each,
)
from patience import milliseconds, sample

from hetccl import mpi

built, each, rules = mpi_jobs.built, mpi_jobs.each, mpi_jobs.rules

# Elements of each call of values.c; all of them at full scale.
EVERY_COUNT = ("0", "1", "7", "1000", "40000")
COUNTS = sample(EVERY_COUNT, 3, seed=19)  # 0, 7 and 40000
FEW_COUNTS = sample(EVERY_COUNT, 2, seed=9)  # 7 and 1000


def test_mpichs_own_settings_choose_for_it_and_for_hetccl(built, tmp_path, monkeypatch):
    mpich = next(one for one in MPIS if one.name == "MPICH")
    need(mpich.missing())
    settings = {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ccl",
                "MPIR_CVAR_BCAST_INTRA_ALGORITHM": "binomial"}  # fmt: skip
    done = launch(mpich, 2, [*built(mpich, "device"), "h"], None, **settings)
    assert done.status == 0, done.text
    assert "hetccl" in done.rows()["allreduce"]
    assert done.rows()["bcast"] == {"MPI"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    source, rows = mpi.describe_rules(None, 2, 1)
    assert source == ", ".join(settings)
    assert rows[0]["host"] == [{"from_bytes": 1, "algorithm": "device"}]


@pytest.mark.parametrize(
    ("settings", "host", "device"),
    [
        ({"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": "algorithms"}, "device", "device"),
        ({"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE_GPU": "algorithms"}, None, "device"),
        ({"MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE": "alpha"}, "alpha", "alpha"),
        ({"MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE": "flat",
          "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": "algorithms"}, "device", "device"),
        ({"MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE": "flat",
          "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE_GPU": "algorithms"}, "beta", "device"),
        ({"MPIR_CVAR_ALLREDUCE_COMPOSITION": "1"}, "alpha", "alpha"),
        ({"MPIR_CVAR_ALLREDUCE_COMPOSITION": "2",
          "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": "algorithms"}, "beta", "beta"),
        ({"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "auto",
          "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": "algorithms"}, "device", "device"),
    ],
)  # fmt: skip
def test_mpichs_settings_together(tmp_path, monkeypatch, settings, host, device):
    files = {
        "algorithms": {"algorithm=MPIR_Allreduce_intra_ccl": {"ccl=auto": {}}},
        "alpha": {"composition=MPIDI_Allreduce_intra_composition_alpha": {}},
        "flat": {"composition=MPIDI_Allreduce_intra_composition_beta": {}},
    }
    for name, leaf in files.items():
        tree = {"collective=allreduce": {"comm_type=intra": {"avg_msg_size=any": leaf}}}
        (tmp_path / name).write_text(json.dumps(tree))
    for name, value in settings.items():
        monkeypatch.setenv(name, str(tmp_path / value) if value in files else value)
    _, rows = mpi.describe_rules(None, 4, 2)
    allreduce = next(row for row in rows if row["collective"] == "allreduce")
    assert host is None or [one["algorithm"] for one in allreduce["host"]] == [host]
    assert [one["algorithm"] for one in allreduce["device"]] == [device]
    # A setting of hetccl's own comes first.
    (tmp_path / "own").write_text(json.dumps({"any": {"algorithm=device": {"streams=2": {}}}}))
    monkeypatch.setenv("HETCCL_MPI_FILE", str(tmp_path / "own"))
    assert mpi.describe_rules(None, 4, 2)[1][0]["host"][0]["algorithm"].startswith("device, 2")


@with_each("ranks", [2, 3], "Intel1 MPICH0 Open1")
def test_every_collective_in_every_form_by_hetccl(each, built, rules, ranks):
    done = launch(each, ranks, [*built(each, "values"), "loose", *COUNTS], rules(BY_HETCCL))
    assert done.status == 0, done.text
    assert re.search(r"^ok \d{4} checks", done.text, re.MULTILINE), done.text
    collectives = ["allreduce", "reduce", "bcast", "allgather", "allgatherv", "reduce_scatter",
                   "reduce_scatter_block", "alltoall", "alltoallv", "gather", "gatherv", "scatter",
                   "scatterv", "barrier"]  # fmt: skip
    assert {name for name, by in done.rows().items() if "hetccl" in by} == set(collectives)


@with_each("tree", [BY_MPI, BY_LEADERS, IN_PARTS], "Intel2 MPICH0 Open1")
def test_other_algorithms_give_the_same_values(each, built, rules, tree):
    if each.name == "Intel MPI" and tree is not IN_PARTS:
        pytest.skip("Intel MPI 2021.18 by itself loses communicators of nonblocking calls")
    done = launch(each, 4, [*built(each, "values"), *FEW_COUNTS], rules(tree))
    assert done.status == 0, done.text
    assert "ok " in done.text
    assert any("hetccl" in by for by in done.rows().values()) == (tree is IN_PARTS)


def test_leaders_of_two_nodes(built, rules):
    mpich = next(one for one in MPIS if one.name == "MPICH")
    need(mpich.missing())
    given = ["-genv", "LD_PRELOAD", str(mpi.LIBRARY), "-genv", "HETCCL_MPI_SUMMARY", "1", "-genv",
             "HETCCL_MPI_FILE", str(rules(BY_LEADERS))]  # fmt: skip
    program = [*built(mpich, "values"), *FEW_COUNTS]
    node = [["-n", "2", "-env", "HETCCL_HOSTID", name, *program] for name in ("a", "b")]
    done = run([str(mpich.prefix / "bin" / mpich.launcher[0]), *given, *node[0], ":", *node[1]],
               {**mpich.env(4), **YIELDING})  # fmt: skip
    assert done.status == 0, done.text
    for collective in ("allreduce", "reduce", "bcast", "barrier"):
        assert re.search(rf"^{collective} +MPI .*leaders of nodes", done.text, re.MULTILINE)


def test_hetccls_own_rules(each, built):
    done = launch(each, 2, [*built(each, "device"), "h"])
    assert done.status == 0, done.text
    assert done.rows()["barrier"] == {"MPI"}
    served = done.rows()["allreduce"]  # of up to 1.2 MB
    assert ("hetccl" in served) == (each.name != "Intel MPI")


@pytest.mark.smoke
def test_device_program_with_host_memory(each, built, rules):
    done = launch(each, 2, [*built(each, "device"), "h"], rules(BY_HETCCL))
    assert done.status == 0, done.text
    assert "ok h " in done.text


def test_threads_that_make_collectives_at_one_time(each, built, rules):
    done = launch(each, 2, built(each, "threads"), rules(BY_HETCCL))
    assert done.status == 0, done.text
    assert re.search(r"^ok$", done.text, re.MULTILINE), done.text
    assert "hetccl" in done.rows()["allreduce"]


def test_it_can_be_switched_off(each, built):
    done = launch(each, 2, [*built(each, "faults"), "none"], HETCCL_MPI="0")
    assert done.status == 0, done.text
    assert "hetccl" not in done.text


@with_each("on", ["0", "1"], "Intel1 MPICH0 MPICH1 Open1")
def test_whether_device_memory_is_taken_can_be_asked_at_any_time(each, built, on):
    """MPICH and Intel MPI end a process that asks them before MPI_Init or after MPI_Finalize."""
    done = launch(each, 2, built(each, "questions"), HETCCL_MPI=on)
    assert done.status == 0, done.text
    assert len(re.findall(r"ok(?=ok|$)", done.text, re.MULTILINE)) == 2, done.text
    for when in ("before", "between", "after"):
        assert f"{when} MPIX_Query_rocm_support: 0" in done.text


WRONG_RULES = [
    ({"any": {"algorithm=fast": {}}}, "any / algorithm=fast: is no algorithm"),
    ({"collective=bcast": {"size<3": {}}}, "collective=bcast / size<3: is no condition"),
    ("{", "rules.json"),
]


@with_each("wrong", WRONG_RULES, "Intel0 MPICH1 Open2")
def test_wrong_rules_are_named_and_the_mpi_goes_on(each, built, rules, wrong):
    tree, why = wrong
    done = launch(each, 2, [*built(each, "faults"), "none"], rules(tree))
    assert done.status == 0, done.text
    assert why in done.text
    assert "MPI serves every call" in done.text
    assert "ok" in done.text


@pytest.fixture
def faulty(built, rules, tmp_path):
    """Runs the program in which something goes wrong, and tells one rank's error."""

    def run_it(which: Mpi, ranks: int, fault: str, teller: int, **settings: str) -> tuple[Ran, str]:
        program = [*built(which, "faults"), fault, str(tmp_path / "error")]
        done = launch(which, ranks, program, rules(BY_HETCCL), **settings)
        told = tmp_path / f"error.{teller}"
        return done, told.read_text() if told.exists() else ""

    return run_it


COUNTS_DIFFER = r"rank 0 called all_reduce #\d+ \(20000 int32, sum\) where ranks 1, 2"


def test_ranks_whose_counts_differ_get_an_error_that_names_them(each, faulty):
    done, told = faulty(each, 3, "counts", 0)
    assert re.search(COUNTS_DIFFER, told), done.text


def test_arguments_that_are_wrong_are_named_as_often_as_they_come(each, faulty):
    """MPIs make few error codes before they crash."""
    done, told = faulty(each, 2, "negative", 0)
    assert re.search("sendbuff is null", told), done.text


@with_each("form", ["request", "persistent"], "Intel0 MPICH1 Open0")
def test_an_error_of_a_request_is_that_of_its_wait(each, faulty, form):
    """The communicator returns errors, and MPI_COMM_WORLD would end the job."""
    done, told = faulty(each, 3, f"counts-{form}", 0)
    assert re.search(COUNTS_DIFFER, told), done.text


def test_a_late_rank_is_named_when_a_deadline_is_set(each, faulty):
    done, told = faulty(each, 2, "late", 1, HETCCL_TIMEOUT_MS=milliseconds(1000))
    assert re.search(r"rank 0 has not called it", told), done.text


@pytest.mark.parametrize("what", ["lost", "lost-request"])
def test_a_lost_rank_is_an_error_code_on_the_others(built, rules, tmp_path, what):
    mpich = next(one for one in MPIS if one.name == "MPICH")
    need(mpich.missing())
    program = [*built(mpich, "faults"), what]
    for attempt in range(8):
        prefix = tmp_path / f"error{attempt}"
        done = launch(mpich, 3, [*program, str(prefix)], rules(BY_HETCCL),
                      flags=("-disable-auto-cleanup",))  # fmt: skip
        time.sleep(0.5)
        errors = [path.read_text() for path in tmp_path.glob(f"{prefix.name}.[0-9]")]
        assert all(re.match("rank 2 .*was lost", error) for error in errors), done.text
        if len(errors) == 2:
            return
        # The launcher has killed a rank, though it was told not to: MPICH 5.0 does so at times.
    pytest.fail("no job in which both other ranks lived to tell")


def test_a_rank_without_the_library_ends_the_job_by_name(built):
    mpich = next(one for one in MPIS if one.name == "MPICH")
    need(mpich.missing())
    program = [*built(mpich, "faults"), "none"]
    settings = ["-env", "LD_PRELOAD", str(mpi.LIBRARY), "-env", "HETCCL_INIT_TIMEOUT_MS",
                milliseconds(2000)]  # fmt: skip
    with_it, without = ["-n", "2", *settings, *program], ["-n", "1", *program]
    launcher = str(mpich.prefix / "bin" / mpich.launcher[0])
    jobs = [[launcher, *with_it, ":", *without], [launcher, *without, ":", *with_it]]
    with ThreadPoolExecutor() as pool:  # each waits for as long as a rank may take to join
        last, first = pool.map(lambda job: run(job, {**mpich.env(3), **YIELDING}), jobs)
    assert "rank 2 has not loaded libhetccl_mpi.so" in last.text
    assert "rank 0 has not loaded libhetccl_mpi.so" in first.text
    assert first.status != 0


def test_the_interface_of_mpi_5(tmp_path, rules):
    mpich = next(one for one in MPIS if one.name == "MPICH")
    need(mpich.missing())
    header = mpich.prefix / "include/mpi_abi.h"
    (tmp_path / "mpi.h").write_text(f'#include "{header}"\n')  # not the folder's own mpi.h
    program = tmp_path / "values"
    subprocess.run(
        ["gcc", "-O1", f"-I{tmp_path}", str(PROGRAMS / "values.c"), f"-L{mpich.prefix}/lib",
         "-l:libmpi_abi.so.1", f"-Wl,-rpath,{mpich.prefix}/lib", "-Wl,--allow-shlib-undefined",
         "-o", str(program)],
        check=True,
    )  # fmt: skip
    done = launch(mpich, 2, [str(program), *FEW_COUNTS], rules(BY_HETCCL))
    assert done.status == 0, done.text
    assert {"hetccl"} <= done.rows()["allreduce"]


def tables() -> dict[str, dict[str, str]]:
    """The constants of compat/mpi/abi.cc, by interface: "{name: value or symbol}"."""
    text = (ROOT / "compat/mpi/abi.cc").read_text()
    names = re.findall(r'^ +\{"(MPI_\w+)", ', text, re.MULTILINE)
    found = {}
    for table, body in re.findall(r"const Abi k(\w+)Abi = \{(.*?)\n\};", text, re.DOTALL):
        lists = re.findall(r"(?:values|symbols)\(\{(.*?)\}\)", body, re.DOTALL)
        listed = [part.strip().strip('"') for one in lists for part in one.split(",")]
        found[table] = dict(zip(names, [part for part in listed if part], strict=True))
        for field, value in re.findall(r"\.(\w+) = (?:\{(?:0, )?)?([\w~\"{}-]+)", body):
            found[table].setdefault(field, value.strip('"{}'))
    return found


@pytest.mark.parametrize("table", ["Mpich", "OpenMpi", "Standard"])
def test_the_tables_of_constants_are_the_headers(tmp_path, table):
    which = next(one for one in MPIS if one.name == ("Open MPI" if table == "OpenMpi" else "MPICH"))
    need(which.missing())
    header = "mpi_abi.h" if table == "Standard" else "mpi.h"
    constants = tables()[table]
    fields = {"undefined": "MPI_UNDEFINED", "any_source": "MPI_ANY_SOURCE", "root": "MPI_ROOT",
              "any_tag": "MPI_ANY_TAG", "proc_null": "MPI_PROC_NULL", "tag_ub": "MPI_TAG_UB",
              "err_other": "MPI_ERR_OTHER",
              "err_count": "MPI_ERR_COUNT", "thread_multiple": "MPI_THREAD_MULTIPLE",
              "combiner_named": "MPI_COMBINER_NAMED", "combiner_dup": "MPI_COMBINER_DUP",
              "combiner_contiguous": "MPI_COMBINER_CONTIGUOUS"}  # fmt: skip
    checks = [f"_Static_assert({name} == ({constants[field]}), \"{name}\");"
              for field, name in fields.items()]  # fmt: skip
    named = {name: value for name, value in constants.items() if name.startswith("MPI_")}
    assert len(named) > 40
    lines = ["#define _GNU_SOURCE", "#include <dlfcn.h>", "#include <stddef.h>",
             f"#include <{header}>", *checks,
             f"_Static_assert(sizeof(MPI_Status) == {constants['status_bytes']}, \"status\");",
             f"_Static_assert(offsetof(MPI_Status, MPI_SOURCE) == {constants['status_source']}, "
             '"source");',
             f"_Static_assert(offsetof(MPI_Status, MPI_TAG) == {constants['status_tag']}, "
             '"tag");',
             f"_Static_assert(offsetof(MPI_Status, MPI_ERROR) == {constants['status_error']}, "
             '"error");',
             f"_Static_assert(sizeof(MPI_Request) == {constants['handle_bytes']}, \"handle\");",
             "int main(void) {"]  # fmt: skip
    handles = {"comm_world": "MPI_COMM_WORLD", "comm_self": "MPI_COMM_SELF",
               "request_null": "MPI_REQUEST_NULL"}  # fmt: skip
    named |= {name: constants[field] for field, name in handles.items()}
    for field, name in {"in_place": "MPI_IN_PLACE", "status_ignore": "MPI_STATUS_IGNORE"}.items():
        value = constants[field].replace("~Word{0", "~(size_t)0")
        lines.append(f"if ((size_t){name} != {value}) return 1;")
    for number, (name, value) in enumerate(named.items(), 2):
        if table == "OpenMpi":
            lines.append(f'if ((void*){name} != dlsym(RTLD_DEFAULT, "{value}")) return {number};')
        else:
            lines.append(f"if ((size_t){name} != {value}) return {number};")
    (tmp_path / "check.c").write_text("\n".join([*lines, "return 0; }"]))
    program = tmp_path / "check"
    libraries = which.compiling() if table == "OpenMpi" else [f"-I{which.prefix}/include"]
    subprocess.run(["gcc", "-w", str(tmp_path / "check.c"), *libraries, "-o", str(program)],
                   check=True)  # fmt: skip
    assert subprocess.run([str(program)], check=False).returncode == 0


@pytest.mark.parametrize("module", ["mpi_f08", "mpi"])
@pytest.mark.parametrize("debian", ["openmpi", "mpich"])
def test_a_fortran_program(tmp_path, rules, debian, module):
    compiler = shutil.which(f"mpifort.{debian}")
    need(None if compiler else f"no mpifort.{debian}")
    program = tmp_path / "fortran"
    define = ["-DF08"] if module == "mpi_f08" else []
    subprocess.run(
        [compiler, *define, "-w", "-fallow-argument-mismatch", str(PROGRAMS / "fortran.F90"), "-o",
         str(program)],
        check=True, cwd=tmp_path,
    )  # fmt: skip
    environment = {"HETCCL_MPI_FILE": str(rules(BY_HETCCL)), "HETCCL_MPI_SUMMARY": "1"}
    library = str(mpi.LIBRARY)
    given = (["--oversubscribe", "-x", f"LD_PRELOAD={library}"] if debian == "openmpi"
             else ["-genv", "LD_PRELOAD", library])  # fmt: skip
    done = run([f"mpiexec.{debian}", *given, "-n", "3", str(program)],
               {**DEBIAN_KEEPS_ROOT, **environment})  # fmt: skip
    assert done.status == 0, done.text
    assert re.search(r"^ok$", done.text, re.MULTILINE), done.text
    assert "hetccl" in done.rows()["allreduce"]
    assert "hetccl" in done.rows()["bcast"]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return commands.run(*arguments, env=environment)


def test_the_path_to_preload():
    path = command("mpi-lib").stdout.strip()
    assert path == str(mpi.LIBRARY)
    assert Path(path).is_file()
    # Programs without an MPI are not affected.
    assert subprocess.run(["true"], env={"LD_PRELOAD": path}, check=False).returncode == 0


def test_information_about_the_mpi_in_path(each):
    shown = command("mpi-info", PATH=f"{each.prefix / 'bin'}:{os.environ['PATH']}", COLUMNS="200",
                    **each.env(2))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert each.name in shown.stdout
    assert str(mpi.LIBRARY) in shown.stdout
    assert re.search(r"allreduce .*hetccl", shown.stdout)


@pytest.mark.long
@with_each("name", ["tuned.json"], "Intel0 Open0")
def test_measured_rules_are_rules(each, name, built, tmp_path, monkeypatch):
    path, base = tmp_path / name, tmp_path / "base.json"
    base.write_text('{"collective=allreduce": {}}')
    done = launch(
        each, 2,
        [sys.executable, "-m", "hetccl", "tune", "--mpi", str(path), "--collective", "allreduce",
         "--collective", "bcast", "--sizes", "1K,256K", "--budget-seconds", "0.4", "--mpich",
         str(base)],
        preload=False, LD_LIBRARY_PATH=str(each.prefix / "lib"), COLUMNS="200",
    )  # fmt: skip
    assert done.status == 0, done.text
    assert "allreduce" in done.text
    monkeypatch.setenv("HETCCL_MPI_FILE", str(path))
    source, rows = mpi.describe_rules(None, 2, 1)
    assert source == str(path)
    described = {row["collective"]: row for row in rows}
    algorithms = {one["algorithm"] for one in described["allreduce"]["host"]}
    assert algorithms <= {"beta", "device", "device, 4 streams, 2 communicators"}
    monkeypatch.delenv("HETCCL_MPI_FILE")
    own = {row["collective"]: row for row in mpi.describe_rules(None, 2, 1)[1]}
    for collective in ("reduce", "gather", "barrier"):  # which were not measured
        assert described[collective] == own[collective]
    assert (tmp_path / "tuned.mpich.json").exists()
    done = launch(each, 2, [*built(each, "device"), "h"], path)
    assert done.status == 0, done.text


def test_measured_rules_choose_the_fastest():
    from hetccl.tune.mpi import rules_of

    def point(size, **us):
        return {"collective": "bcast", "bytes": size, "us": us}

    points = [point(4, mpi=1.0, device=2.0), point(64, mpi=10.0, device=9.8),
              point(256, mpi=20.0, device=5.0), point(16, mpi=2.0, device=2.0)]  # fmt: skip
    others = {"algorithm=mpi": {}}
    assert rules_of(points, others) == {
        "collective=bcast": {"comm_type=intra": {
            "avg_msg_size<=64": {"algorithm=mpi": {}}, "avg_msg_size=any": {"algorithm=device": {}},
        }},
        "any": others,
    }  # fmt: skip


def test_measured_rules_for_mpich_itself(built, tmp_path):
    from hetccl.tune.mpi import mpich_rules

    mpich = next(one for one in MPIS if one.name == "MPICH")
    need(mpich.missing())
    algorithms = {"allreduce": "recursive_doubling", "bcast": "binomial", "reduce": "binomial",
                  "allgather": "ring", "gather": "binomial", "scatter": "binomial",
                  "alltoall": "scattered", "barrier": "k_dissemination",
                  "reduce_scatter_block": "pairwise"}  # fmt: skip
    base = {
        f"collective={name}": {
            "comm_type=intra": {f"algorithm=MPIR_{name.capitalize()}_intra_{algorithm}": {}}
        }
        for name, algorithm in algorithms.items()
    }
    base["collective=barrier"]["comm_type=intra"]["algorithm=MPIR_Barrier_intra_k_dissemination"][
        "k=2"
    ] = {}
    for name, algorithm in (
        ("bcast", "remote_send_local_bcast"),
        ("allreduce", "reduce_exchange_bcast"),
    ):
        inter = {f"algorithm=MPIR_{name.capitalize()}_inter_{algorithm}": {}}
        base[f"collective={name}"]["comm_type=inter"] = inter
    base |= {
        "collective=iallreduce": {"algorithm=MPIR_Iallreduce_intra_sched_recursive_doubling": {}},
        "collective=ibcast": {"algorithm=MPIR_Ibcast_intra_sched_binomial": {}},
        "collective=allgatherv": {"algorithm=MPIR_Allgatherv_intra_ring": {}},
    }
    points = [{"collective": "allreduce", "bytes": size, "us": {"mpi": 2.0, "device": us}}
              for size, us in ((512, 3.0), (4096, 1.0), (65536, 1.0))]  # fmt: skip
    tree = mpich_rules(base, points)
    within = tree["collective=allreduce"]["comm_type=intra"]
    assert within == {
        "avg_msg_size<=512": base["collective=allreduce"]["comm_type=intra"],
        "avg_msg_size=any": {"algorithm=MPIR_Allreduce_intra_ccl": {"ccl=auto": {}}},
    }
    path = tmp_path / "mpich.json"
    path.write_text(json.dumps(tree))
    setting = {"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": str(path)}
    # MPICH alone takes it; of more this one, which is built without ccl, crashes.
    done = launch(mpich, 2, [*built(mpich, "device"), "h", "40"], preload=False, **setting)
    assert done.status == 0, done.text
    # So does hetccl, which then serves these.
    done = launch(mpich, 2, [*built(mpich, "device"), "h", "40", "1000"], **setting)
    assert done.status == 0, done.text
    assert done.rows()["allreduce"] == {"hetccl", "MPI"}
    assert done.rows()["bcast"] == {"MPI"}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--mpi", "r.json"], "start it with an MPI's launcher"),
        (["--mpi", "r.json", "--collective", "scan"], "it is none of allreduce"),
        (["--gpu"], "--gpu and --mpich go with --mpi"),
        (["--mpi", "r.json", "--mpich", "none.json"], "none.json: No such file"),
        (["--mpi", "r.json", "--mpich", "/proc/self/cmdline"], "is no JSON"),
        (["--mpi", "r.json", "--report", "x"], "give one of"),
    ],
)
def test_tuning_refuses_what_it_cannot_do(arguments, why):
    refused = command("tune", *arguments, COLUMNS="200")
    assert refused.returncode == 2
    assert why in refused.stderr.replace("\n", " ")
    assert "Traceback" not in refused.stderr


@pytest.mark.smoke
def test_information_about_rules(rules):
    path = rules({"collective=bcast": {"avg_msg_size<1024": {"algorithm=mpi": {}},
                                       "any": {"algorithm=device": {}}}})  # fmt: skip
    shown = command("mpi-info", HETCCL_MPI_FILE=str(path), COLUMNS="200").stdout
    assert f"rules     {path}" in shown
    assert re.search(r"bcast .*MPI; from 1 KiB hetccl", shown)
    path = rules({"collective=bcast": {"composition=alpha": {}},
                  "collective=allreduce": {"algorithm=device": {"streams=4": {}}}})  # fmt: skip
    shown = command("mpi-info", "--nodes", "2", HETCCL_MPI_FILE=str(path), COLUMNS="200").stdout
    assert re.search(r"bcast +│ MPI, by leaders", shown)
    assert re.search(r"allreduce +│ hetccl, 4 streams", shown)
    wrong = command("mpi-info", HETCCL_MPI_FILE=str(rules("{}")))
    assert wrong.returncode == 1
    assert str(path) in wrong.stderr
    assert "Traceback" not in wrong.stderr
