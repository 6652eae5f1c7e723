"""Files that hetccl writes and reads where other users of the machine may have been first."""

import os
import subprocess
import sys

import commands
import pytest
from patience import HANG

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


def topo(*arguments, status=0):
    env = {"COLUMNS": "300", "NO_COLOR": "1"}
    done = commands.run_to(status, "topo", "--layout", "AB", *arguments, env=env)
    return done.stdout + done.stderr


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "topology.json"
    path.write_text("old")
    path.chmod(0o640)
    before = path.stat().st_ino
    topo("--save", path)
    assert '"ranks"' in path.read_text()
    assert path.stat().st_ino != before
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_umask_s_mode(tmp_path):
    topo("--svg", tmp_path / "new.svg")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "new.svg").stat().st_mode & 0o777 == 0o666 & ~mask


@as_root
def test_a_link_of_another_user_is_refused(tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "topology.json"
    victim.write_text("untouched")
    link.symlink_to(victim)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert "another user" in topo("--save", link, status=2)
    assert victim.read_text() == "untouched"


@pytest.mark.long
def test_what_the_user_points_elsewhere_is_written_there(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    topo("--save", link)
    assert '"ranks"' in target.read_text()
    command = [sys.executable, "-m", "hetccl", "topo", "--layout", "AB", "--svg", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=True)
    assert "<svg" in done.stdout  # of a pipe: a file would be written from its start


def test_a_fifo_that_nobody_reads_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert "fifo" in topo("--save", tmp_path / "fifo", status=2)


READ = """
import sys
from pathlib import Path
from hetccl.launchers.placement import RendezvousError
from hetccl.rendezvous import exchange
try:
    exchange(1, Path(sys.argv[1]), 2.0)
except RendezvousError as error:
    print(error)
"""


def meet(path):
    done = subprocess.run(
        [sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=HANG, check=True
    )
    return done.stdout


def test_a_fifo_in_the_place_of_the_unique_id_holds_no_rank_up(tmp_path):
    os.mkfifo(tmp_path / "id")
    assert "id holds no unique id of rank 0's: it is no regular file" in meet(tmp_path / "id")


@as_root
def test_another_user_s_unique_id_is_refused(tmp_path):
    (tmp_path / "id").write_bytes(bytes(128))
    os.chown(tmp_path / "id", NOBODY, NOBODY)
    assert f"it is a file of user {NOBODY}, not yours" in meet(tmp_path / "id")
