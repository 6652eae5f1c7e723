"""The example of docs/kv.md runs as it is printed, over the double of the endpoint."""

import re
import threading
from pathlib import Path
from types import SimpleNamespace

import torch
from kv_world import FakeEndpoint, World

PAGE = Path(__file__).parents[2] / "docs/kv.md"


class LockedEndpoint(FakeEndpoint):
    """One endpoint moves at a time; each look for messages lets the world step."""

    lock = threading.RLock()

    def notifications(self, timeout=0):
        with self.lock:
            self.world.step()
            return super().notifications(timeout)


for _name in ("connect", "put", "get", "notify", "register"):

    def _locked(self, *arguments, _name=_name, **options):
        with self.lock:
            return getattr(FakeEndpoint, _name)(self, *arguments, **options)

    setattr(LockedEndpoint, _name, _locked)


def test_the_two_workers_of_the_page(monkeypatch, capsys):
    world = World(0, pace=1.1)
    world.late_by = 0
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
        "SECRET": "s", "publish": publish, "metadata_of": metadata_of, "compute": compute,
        "free_blocks": lambda request, blocks: freed.append((request, blocks)),
    }  # fmt: skip
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    endpoint = SimpleNamespace(Endpoint=lambda name, secret: LockedEndpoint(world, name))
    spaces = [dict(names), dict(names)]

    def run(source, space):
        space["hetccl"] = endpoint
        try:
            exec(
                compile(source.replace("import torch, hetccl", "import torch"), PAGE, "exec"), space
            )
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
    source, target = (space["caches"] for space in spaces)
    for layer in range(28):
        sent = torch.cat([source[layer][:, block] for block in (7, 3, 9)], 1)[:, :40]
        held = torch.cat([target[layer][block] for block in (5, 0)], 2)[:, :, :40]
        assert torch.equal(held.permute(0, 2, 1, 3).float(), sent.half().float())
