"""docs/nccl.md lists every function and configuration field of NCCL 2.28.9's headers."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Functions of nccl.h, and two of nccl_device.h, without the prefix.
FUNCTIONS = """
AllGather AllReduce AlltoAll Bcast Broadcast CommAbort CommCount CommCuDevice CommDeregister
CommDestroy CommFinalize CommGetAsyncError CommInitAll CommInitRank CommInitRankConfig
CommInitRankScalable CommRegister CommRevoke CommShrink CommSplit CommUserRank
CommWindowDeregister CommWindowRegister DevCommCreate DevCommDestroy Gather GetErrorString
GetLastError GetUniqueId GetVersion GroupEnd GroupSimulateEnd GroupStart MemAlloc MemFree Recv
RedOpCreatePreMulSum RedOpDestroy Reduce ReduceScatter ResetDebugInit Scatter Send
"""
FIELDS = """
blocking cgaClusterSize minCTAs maxCTAs netName splitShare trafficClass commName collnetEnable
CTAPolicy shrinkShare nvlsCTAs nChannelsPerNetPeer nvlinkCentricSched
"""


def rows(heading: str) -> dict[str, str]:
    """The second column of the table below a heading, by the first."""
    page = (ROOT / "docs/nccl.md").read_text()
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (?:`(\w+)`|none) \|", section, re.MULTILINE))


def test_every_function_has_a_row_that_names_one_of_the_header():
    table = rows("Functions")
    assert set(table) == {f"nccl{name}" for name in FUNCTIONS.split()}
    header = (ROOT / "include/hetccl/hetccl.h").read_text()
    for named in filter(None, table.values()):
        assert re.search(rf"\b{named}\(", header), named


def test_every_field_has_a_row_that_names_one_of_the_config():
    table = rows("The configuration")
    assert set(table) == set(FIELDS.split())
    types = (ROOT / "include/hetccl/types.h").read_text()
    config = types.partition("} hetcclConfig_t;")[0].rpartition("typedef struct {")[2]
    for named in filter(None, table.values()):
        assert re.search(rf"\b{named};", config), named
