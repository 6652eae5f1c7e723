"""examples/: each program, started as its first lines say, trains as one process does."""

import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from mpi_jobs import DEBIAN_KEEPS_ROOT
from patience import HANG, mostly_long

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_file())


def commands_of(name):
    """The commands in the first comment of an example."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    return re.findall(r"^(?: \* )? {4}(\S.*)$", re.split(r'"""$|\*/', text, flags=re.M)[0], re.M)


@pytest.fixture
def launch(forked_python, monkeypatch, tmp_path):
    """Runs lines of a shell, with torchrun at a free port, and returns what they print."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, module in (("torchrun", "torch.distributed.run"), ("hetccl", "hetccl")):
        (bin_folder / name).write_text(f'#!/bin/sh\nexec {forked_python} -m {module} "$@"\n')
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHON_EXEC", forked_python)  # of torchrun's ranks
    monkeypatch.setenv("PET_STANDALONE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "examples").symlink_to(EXAMPLES)

    def run(*lines):
        done = subprocess.run(
            ["/bin/sh", "-ec", "\n".join(lines)],
            cwd=tmp_path, capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(params=mostly_long(["ddp", "fsdp2", "pipeline", "experts", "slow_link"], 2))
def example(request):
    """The functions of an example, whose main does not run, in a thread of this process."""
    before = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    yield request.param, runpy.run_path(str(EXAMPLES / f"{request.param}.py"))
    torch.set_num_threads(before[0])
    torch.set_rng_state(before[1])


def train(model, loss_of, batch, steps, optimizer):
    """The loss of each step, then of what is left: one process, in double precision."""
    losses = []
    for step in range(steps):
        loss = loss_of(model, batch(step).double())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [*losses, loss_of(model, batch(steps).double()).item()]


def reference_of(name, module):
    """Returns the losses of one process, in double precision, with the model and data of an
    example.
    """
    batch, loss_of = module["make_batch"], module.get("loss_of")
    if name == "pipeline":
        model = torch.nn.Sequential(*module["make_stages"]()).double()
        targets = {step: batch(step)[1] for step in range(module["STEPS"] + 1)}
        inputs = {step: batch(step)[0] for step in targets}
        numbers = iter(targets)
        return train(
            model, lambda net, x: loss_of(net(x), targets[next(numbers)].double()),
            inputs.get, module["STEPS"], torch.optim.SGD(model.parameters(), lr=0.02),
        )  # fmt: skip
    if name == "experts":
        router, experts = module["make_layer"](4)
        model = torch.nn.ModuleList([router, *experts]).double()

        def loss_of(_, x):
            weight, choice = router(x).softmax(1).max(1)
            every = torch.stack([expert(x) for expert in experts])
            out = every[choice, torch.arange(len(x))] * weight.unsqueeze(1)
            return (out - x.mean(1, keepdim=True)).square().mean()

        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        return train(model, loss_of, batch, module["STEPS"], optimizer)
    model = module["make_model"]().double()
    optimizer = {
        "ddp": lambda: torch.optim.SGD(model.parameters(), lr=0.05),
        "fsdp2": lambda: torch.optim.AdamW(model.parameters(), lr=1e-2),
        "slow_link": lambda: torch.optim.AdamW(model.parameters(), lr=1e-3),
    }[name]()
    return train(model, loss_of, batch, module["STEPS"], optimizer)


def test_an_example_trains_as_one_process_does(example, launch):
    name, module = example
    told = launch(commands_of(f"{name}.py")[0])
    got = [float(loss) for loss in re.findall(r"\d+\.\d{6}\b", told)]
    want = reference_of(name, module)
    assert want[-1] < 0.9 * want[0] or want[-2] < 0.9 * want[0]  # it learns
    if name in ("pipeline", "experts"):
        assert got == pytest.approx(want[:-1], rel=2e-3)
    else:
        assert len(got) == (4 if name == "ddp" else 1)
        assert got == pytest.approx([want[-1]] * len(got), rel=2e-3)


@pytest.mark.long
def test_an_encoded_example_trains_nearly_as_the_exact_one(launch):
    exact, encoded = commands_of("slow_link.py")
    assert (exact[-5:], encoded[-11:]) == ("exact", "three-level")
    (loss,) = (float(loss) for loss in re.findall(r"loss: (\S+)", launch(encoded)))
    want = reference_of("slow_link", runpy.run_path(str(EXAMPLES / "slow_link.py")))[-1]
    assert loss == pytest.approx(want, rel=0.2)
    assert loss != pytest.approx(want, rel=1e-3)  # it is encoded


def descend():
    """The line of own_loop.c after its steps, in one process."""
    line = [0.0, 0.0]
    xs = [i / 50 - 1 for i in range(100)]
    for _ in range(20):
        errors = [line[0] * x + line[1] - (3 * x - 1) for x in xs]
        line[0] -= 0.3 * sum(2 * e * x / 100 for e, x in zip(errors, xs, strict=True))
        line[1] -= 0.3 * sum(2 * e / 100 for e in errors)
    return line


@pytest.mark.long
def test_the_loop_in_c_compiles_and_descends(launch):
    told = launch(*commands_of("own_loop.c"))
    lines = re.findall(r"rank (\d) of 4: y = (\S+) x (\S+)", told)
    assert sorted(rank for rank, _, _ in lines) == ["0", "1", "2", "3"]
    assert len({line[1:] for line in lines}) == 1  # the same bits
    assert [float(number) for number in lines[0][1:]] == pytest.approx(descend(), abs=1e-12)


def test_the_loop_in_c_says_how_it_is_started_and_what_failed(launch, tmp_path):
    launch(*commands_of("own_loop.c")[:2])
    plain = {name: text for name, text in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    for more, argument, text in (
        ({}, "id", "usage: RANK=0 WORLD_SIZE=2 ./a.out FILE, on each rank"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "nowhere/id", "nowhere/id: No such file or directory"),
        ({"RANK": "3", "WORLD_SIZE": "1"}, "id", "rank is 3: it must be from 0 to 0"),
    ):
        (tmp_path / "id").write_bytes(bytes(128))
        done = subprocess.run(
            ["./a.out", argument], cwd=tmp_path, env={**plain, **more},
            capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        assert done.returncode in (1, 2)
        assert text in done.stderr


@pytest.mark.smoke
def test_examples_are_short_and_have_a_page():
    assert len(PROGRAMS) == 6
    page = (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    for name in PROGRAMS:
        assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 80, name
        assert f"examples/{name}" in page, name
        assert commands_of(name), name
        for command in commands_of(name):
            assert command in page, command


def test_the_program_of_the_page_of_the_c_api(tmp_path, forked_python, monkeypatch):
    if not shutil.which("mpicc"):
        pytest.skip("there is no mpicc: tools/setup --mpi installs it")
    page = (ROOT / "docs/c-api.md").read_text(encoding="utf-8")
    program, commands = re.findall(r"^```(?:c|sh)\n(.*?)^```$", page, re.M | re.S)[:2]
    (tmp_path / "program.c").write_text(program)
    (tmp_path / "hetccl").write_text(f'#!/bin/sh\nexec {forked_python} -m hetccl "$@"\n')
    (tmp_path / "hetccl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    crowded = {"OMPI_MCA_rmaps_base_oversubscribe": "1", **DEBIAN_KEEPS_ROOT}
    done = subprocess.run(
        ["/bin/sh", "-ec", commands], cwd=tmp_path, env={**os.environ, **crowded},
        capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 4: 1.5 1" for rank in range(4)]
