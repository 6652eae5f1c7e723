"""Short layers of a request travel together (`Options.least_send`)."""

import dataclasses

import pytest
from kv_pair import LAYOUTS, OPTIONS, SOURCE, TARGET, join


@pytest.mark.parametrize("mode", ["push", "pull"])
@pytest.mark.parametrize("layout", ["direct", "packed"])
def test_short_layers_wait_for_the_next_ones_of_their_tokens(mode, layout):
    together = dataclasses.replace(OPTIONS, slot_bytes=1 << 16)
    pair, sender, receiver = join(mode, 2, *LAYOUTS[layout], together)
    layer_bytes = 4 * 4 * 16 * pair.ends["p0"].description.item_bytes  # 4 heads, 4 tokens, K and V
    sender.options = dataclasses.replace(together, least_send=2 * layer_bytes)
    receiver.offer("r", TARGET, (0, 12), mode=mode)
    sender.begin("r", SOURCE, 12)

    def send(layers, tokens):
        """Returns how many layers' bytes have started."""
        metrics = sender.metrics
        before = metrics.direct_bytes + metrics.packed_bytes
        assert sender.send_layers("r", layers, tokens)
        for _ in range(20):
            pair.step()
        return (metrics.direct_bytes + metrics.packed_bytes - before) / layer_bytes

    assert [send([layer], (0, 4)) for layer in range(3)] == [0, 2, 1]  # the last never waits
    assert send([0], (4, 8)) == 0
    assert send([0], (8, 12)) == 1  # other tokens: those before wait no longer
    assert send([1, 2], (8, 12)) == 3
    assert send([2], (4, 8)) == 1
    assert send([1], (4, 8)) == 0  # no other layer follows: `commit` sends it
    assert sender.commit("r")
    assert all(one.ok for one in pair.run(("p0", "r"), ("d0", "r")))
    wanted, found = (pair.cells(*end, (0, 12)) for end in (("p0", SOURCE), ("d0", TARGET)))
    assert (wanted == found).all()
