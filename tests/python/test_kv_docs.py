"""The example of docs/kv.md runs as it is printed, over real endpoints."""

import re
import threading
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs/kv.md"


@pytest.mark.smoke
def test_the_two_workers_of_the_page(monkeypatch, capsys):
    metadata, is_published, freed, errors = [], threading.Event(), [], []

    def publish(data):
        metadata.append(data)
        is_published.set()

    def metadata_of(name):
        assert name == "p0" and is_published.wait(60)
        return metadata[0]

    def compute(layer, cache):
        cache.view(torch.int16)[:] = layer + torch.arange(cache.numel()).view(cache.shape) % 900

    names = {
        "publish": publish, "metadata_of": metadata_of, "compute": compute,
        "free_blocks": lambda request, blocks: freed.append((request, blocks)),
    }  # fmt: skip
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    spaces = [dict(names), dict(names)]

    def run(source, space):
        try:
            exec(compile(source, PAGE, "exec"), space)
        except BaseException as error:
            errors.append(error)
            is_published.set()

    threads = [
        threading.Thread(target=run, args=pair, daemon=True)
        for pair in zip((first, second), spaces, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not errors, errors
    assert capsys.readouterr().out == "request 1 is here\n"
    assert freed == [("request 1", [7, 3, 9])]
    for space in spaces:
        for session in ("sender", "receiver"):
            if session in space:
                space[session].close()
                space[session]._endpoint.close()
    source, target = (space["caches"] for space in spaces)
    for layer in range(28):
        sent = torch.cat([source[layer][:, block] for block in (7, 3, 9)], 1)[:, :40]
        held = torch.cat([target[layer][block] for block in (5, 0)], 2)[:, :, :40]
        assert torch.equal(held.permute(0, 2, 1, 3).float(), sent.half().float())
