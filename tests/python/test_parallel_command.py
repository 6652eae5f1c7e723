"""`hetccl parallel`: its tables, its JSON, its errors, and times that the tuner has measured."""

import json

import pytest
from test_parallel_plan import topology
from typer.testing import CliRunner

from hetccl import cli
from hetccl.parallel import ParallelError, Strategy, read_site, read_times
from hetccl.parallel.sites import Group


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["parallel", *arguments], env={"COLUMNS": "80"})


LAYOUT = ("--layout", "A8B16", "--kind", "A=cuda:A800-80GB", "--kind", "B=hip:MI250X")


@pytest.mark.long
def test_command(tmp_path):
    file = tmp_path / "strategy.json"
    done = invoke("llama-3b", *LAYOUT, "--recompute", "--batch", "128", "--save", str(file))
    assert done.exit_code == 0, done.output
    assert "[T, D, P]" in done.output and "Stages of [" in done.output
    assert "pipeline" in done.output and "data" in done.output
    assert max(len(line) for line in done.output.splitlines() if "│" not in line
               and not line.endswith(".") and "tokens, batches" not in line) <= 80  # fmt: skip
    assert Strategy.load(file).size == 24
    values = json.loads(
        invoke("llama-3b", *LAYOUT, "--recompute", "--batch", "128", "--json").output
    )
    assert values["best"]["strategy"] == json.loads(file.read_text())
    assert values["rows"][0]["seconds"] == min(one["seconds"] for one in values["rows"]
                                               if one["fits"])  # fmt: skip


def test_command_with_a_file_and_fixed_degrees(tmp_path):
    file = tmp_path / "topology.json"
    file.write_text(json.dumps(topology("A8B16")))
    given = ("--speed", "0=120T", "--speed", "30T", "--memory", "80G", "--bandwidth", "all=12GB/s")
    done = invoke("gpt-350m", "--topology", str(file), *given, "--tensor", "1", "--data", "8,16",
                  "--layers", "18,6", "--schedule", "1f1b", "--json")  # fmt: skip
    values = json.loads(done.output)
    assert values["site"]["speeds"] == [120e12] * 8 + [30e12] * 16
    assert values["site"]["crossing"] == [12e9] * 2
    assert values["best"]["degrees"] == "[1, 8|16, 2]"
    assert [one["layers"] for one in values["best"]["strategy"]["stages"]] == [
        [[0, 18]],
        [[18, 24]],
    ]


@pytest.mark.parametrize(
    "arguments, told",
    [
        (("gpt", *LAYOUT), "there is no model 'gpt'"),
        (("gpt-350m", *LAYOUT, "--tensor", "5"), "do not multiply to the 24"),
        (("gpt-350m", *LAYOUT, "--data", "x"), "write whole numbers"),
        (("gpt-350m", *LAYOUT, "--speed", "fast"), "write FLOP/s"),
        (("gpt-350m", *LAYOUT, "--speed", "x=1T"), "is no number of a cluster"),
        (("gpt-350m", *LAYOUT, "--speed", "7=1T"), "there is no cluster 7"),
        (("gpt-350m", *LAYOUT, "--memory", "80"), "give a unit"),
        (("gpt-350m", "--layout", "A2"), "the speed of rank 0"),
    ],
)
def test_errors_of_the_command(arguments, told):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert told in " ".join(done.output.replace("│", " ").split())


def test_command_where_nothing_fits():
    done = invoke("llama-70b", "--layout", "A2", "--kind", "A=cuda:A100")
    assert done.exit_code == 1
    assert "no strategy fits: of [2, 1, 1]" in " ".join(done.output.split())
    assert "NO" in done.output


def test_times_of_the_tuner(tmp_path):
    """The fastest setting of each size, measured with as many ranks and hosts."""
    site = read_site(topology("A2B2"), [1e12] * 4)
    key = {"collective": "all_reduce", "size_class": 20}

    def point(size, us, ranks=4, collective="all_reduce", setting=1):
        times = {"us": us, "default_us": 9e6, "ratio": us / 9e6, "error": 0.0, "samples": 3}
        return {
            "key": {**key, "collective": collective, "size_class": size.bit_length()},
            "setting": {"algorithm": "a", "depth": setting},
            "default": {"algorithm": "a", "depth": 0}, **times, "bytes": size,
            "dtype": "float32", "ranks": ranks, "hosts": 2, "place": "", "summary": "",
            "failed": "",
        }  # fmt: skip

    points = [
        point(1 << 20, 2e6), point(1 << 20, 1e6, setting=2), point(1 << 24, 5e6),
        point(1 << 20, 10.0, ranks=2), point(1 << 20, 10.0, collective="all_gather"),
    ]  # fmt: skip
    file = tmp_path / "tune.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in points))
    timed = read_times(file, site)
    assert timed.times == ((1 << 20, 1.0), (1 << 24, 5.0))
    assert timed.reduce_seconds([Group((0, 1, 2, 3), 1 << 20)]) == 1.0
    assert timed.reduce_seconds([Group((0, 1, 2, 3), 1 << 25)]) == 10.0
    for groups in ([Group((0, 1), 1 << 20)], [Group((0, 2), 64.0), Group((1, 3), 64.0)]):
        assert timed.reduce_seconds(groups) == site.reduce_seconds(groups)
    done = invoke("gpt-125m", "--layout", "A2B2", "--speed", "1T", "--memory", "80G", "--json",
                  "--times", str(file))  # fmt: skip
    assert json.loads(done.output)["site"]["times"] == [[1 << 20, 1.0], [1 << 24, 5.0]]
    with pytest.raises(
        ParallelError, match="no all_reduce of 3 ranks on 1 host: it has calls of 2"
    ):
        read_times(file, read_site(topology("A3"), [1e12] * 3))
    file.write_text("{}\n" * 2)
    with pytest.raises(ParallelError, match="line 1: this is no point"):
        read_times(file, site)
    missing = invoke("gpt-125m", "--layout", "A2", "--speed", "1T", "--times", str(tmp_path / "no"))
    assert missing.exit_code == 2
    assert "No such file" in " ".join(missing.output.replace("│", " ").split())
