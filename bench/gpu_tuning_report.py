"""What bench/gpu_tuning.py prints of its measurements."""

from __future__ import annotations

import statistics

from gpu_contender import Answer, print_table, text

MODES = {"online": "by collective", "step": "by step"}
FIRST_WARM_UPS = 10  # steps of a job in which memory is taken and kernels are loaded


def show_first(found: Answer) -> None:
    """What the first steps lost against the default, and what the search itself believes."""
    n_steps = len(found["default"]["ms"])
    skipped = FIRST_WARM_UPS if n_steps > 2 * FIRST_WARM_UPS else 0
    sums = {name: sum(each["ms"][skipped:]) for name, each in found.items()}
    rows = []
    for name, whole in sums.items():
        if not whole or not sums["default"]:
            continue
        tuning = found[name]["tuning"]
        tried = sum(key["trials"] for key in tuning.get("keys", []))
        own = f"{0.1 * tuning['lost_us'] / whole:.1f} %" if "lost_us" in tuning else "-"
        lost = f"{100 * (whole / sums['default'] - 1):+.1f} %"
        middle = statistics.median(found[name]["ms"][skipped:])
        rows.append([MODES.get(name, name), f"{whole:.0f}", f"{middle:.1f}", lost, own, str(tried)])
    heads = ["ms", "a step", "lost", "by its own count", "settings tried"]
    print_table([f"steps {skipped} to {n_steps}", *heads], rows, 1)


def show_settings(searches: Answer) -> None:
    """Of each key, by either search."""
    rows = []
    for mode, known in searches.items():
        for key in known.get("keys", []):
            if not key["tried"]:
                continue
            start = next((each["setting"] for each in key["tried"] if each["ratio"] == 1), {})
            setting = key.get("setting", start)
            gain = key["default_us"] / key["us"] if key["us"] and key["default_us"] else None
            found = "the default" if setting == start else setting_text(setting)
            state = [key["state"], str(key["trials"])]
            words = [setting_text(start), found]
            rows.append([key_text(key["key"]), MODES[mode], *state, *words, text(gain)])
    heads = ["key", "tuned", "state", "trials", "default", "found", "gain"]
    print_table(heads, sorted(rows), 6)
    for mode, known in searches.items():
        lost = 1e-3 * known.get("lost_us", 0)
        print(f"  search {MODES[mode]}: {known['steps']} steps, lost {lost:.0f} ms")


def key_text(key: Answer) -> str:
    """ "all_reduce <= 32 MiB"."""
    size = 1 << key["size_class"]
    units = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
    unit, name = next(each for each in units if size >= each[0])
    return f"{key['collective']} <= {size // unit} {name}"


def setting_text(setting: Answer) -> str:
    """ "ring 1024K d4 b8": slice, depth and, where there are, GPU blocks; then what the vendor's
    library is asked for: "vendor ring/simple c16"."""
    words = [setting.get("algorithm", "?")]
    if "slice_bytes" in setting:
        words.append(f"{setting['slice_bytes'] / 1024:.0f}K")
    if "depth" in setting:
        words.append(f"d{setting['depth']}")
    if "gpu_blocks" in setting:
        words.append(f"b{setting['gpu_blocks']}")
    if "nccl_algorithm" in setting:
        words.append(f"{setting['nccl_algorithm']}/{setting['nccl_protocol']}")
    if "nccl_channels" in setting:
        words.append(f"c{setting['nccl_channels']}")
    return " ".join(words)


def show_steps(measured: Answer) -> None:
    """Medians of all steps, between which those of the rounds lie, and the default over each in
    the same round, with its error: the machine's speed changes from round to round."""
    rows = []
    middles = {
        name: [statistics.median(one) for one in rounds] for name, rounds in measured.items()
    }
    for name, each in middles.items():
        if not each:
            continue
        whole = statistics.median(ms for one in measured[name] for ms in one)
        ratios = [a / b for a, b in zip(middles["default"], each, strict=False)]
        error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0
        numbers = [f"{ms:.2f}" for ms in (whole, min(each), max(each))]
        of = f"{statistics.fmean(ratios):.3f} +- {error:.3f}" if ratios else "-"
        rows.append([MODES.get(name, name), *numbers, of])
    print_table(["a step, ms", "median", "least round", "most", "default over it"], rows, 1)


def compare_losses(losses: dict[str, list[float]]) -> float:
    """Every job's beside the default's, step by step: the largest relative difference."""
    default = losses["default"]
    pairs = []
    for name, each in losses.items():
        if name != "default":
            pairs += zip(each, default, strict=False)
    if not pairs:
        return 0
    largest = max(abs(a - b) / abs(b) for a, b in pairs)
    differing = sum(a != b for a, b in pairs)
    print(
        f"  losses of the default: {default[0]:.4f} to {default[-1]:.4f} in {len(default)} steps; "
        f"of {len(pairs)} steps of the others {differing} have another loss, by {largest:.2g} of "
        "it at most"
    )
    return largest
