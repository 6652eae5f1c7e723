"""A plan as a picture: a lane for each rank, a column for each stage; below, slices over time."""

from __future__ import annotations

from hetccl.drawing import Drawing, colour_of, text_width
from hetccl.plan.description import Description, RankPlan, name_of, regions_of

MOST_RANKS = 32  # that one picture shows
_MARGIN = 16.0
_LABEL = 92.0  # of a lane
_STEP, _STEP_GAP = 26.0, 8.0  # heights
_LANE_GAP = 10.0
_COLUMN_GAP = 64.0  # room for the messages
_SLICES, _CELL, _ROW = 6, 46.0, 24.0


class _Lanes:
    def __init__(self, plan: Description) -> None:
        self.plan = plan
        self.drawing = Drawing()
        self.drawing.arrowheads()
        stages = range(plan["stages"])
        widths = [
            max((self._width(step) for rank in plan.ranks for step in rank.steps
                 if step["stage"] == stage), default=60.0)
            for stage in stages
        ]  # fmt: skip
        self.width = dict(zip(stages, widths, strict=True))
        self.left = {}
        x = _MARGIN + _LABEL + 14
        for stage in stages:
            self.left[stage] = x
            x += self.width[stage] + _COLUMN_GAP
        self.right = x - _COLUMN_GAP + 14
        self.places: dict[tuple[int, int], tuple[float, float, float]] = {}

    @staticmethod
    def _width(step: dict[str, object]) -> float:
        return text_width(name_of(step), 12) + 20

    def draw(self) -> float:
        """All lanes; returns where they end."""
        y = _MARGIN + 22
        for stage, x in self.left.items():
            self.drawing.text(x + self.width[stage] / 2, y - 8, f"stage {stage}", look="muted",
                              anchor="middle")  # fmt: skip
        for rank in self.plan.ranks:
            y = self._lane(rank, y) + _LANE_GAP
        for number, message in enumerate(self.plan.messages()):
            self._arrow(18.0 + 6 * (number % 6), *message)
        return y

    def _lane(self, rank: RankPlan, top: float) -> float:
        by_stage: dict[int, list[int]] = {}
        for number, step in enumerate(rank.steps):
            by_stage.setdefault(step["stage"], []).append(number)
        rows = max(map(len, by_stage.values()), default=1)
        height = rows * (_STEP + _STEP_GAP) + _STEP_GAP
        colour = colour_of(rank.cluster)
        self.drawing.box(_MARGIN, top, self.right - _MARGIN, height, colour=colour, opacity=0.07)
        self.drawing.text(_MARGIN + 12, top + height / 2 - 2, f"rank {rank.rank}", look="title")
        self.drawing.text(_MARGIN + 12, top + height / 2 + 14, f"cluster {rank.cluster}",
                          look="muted")  # fmt: skip
        for stage, numbers in by_stage.items():
            for row, number in enumerate(numbers):
                y = top + _STEP_GAP + row * (_STEP + _STEP_GAP)
                self._step(rank, number, self.left[stage], y, self.width[stage], colour)
        return top + height

    def _step(self, rank: RankPlan, number: int, x: float, y: float, width: float,
              colour: str) -> None:  # fmt: skip
        step = rank.steps[number]
        inside = step["kind"].startswith("ccl_")
        title = f"step {number}: {name_of(step)} {regions_of(step)}"
        self.drawing.box(x, y, width, _STEP, colour=colour, opacity=1.0 if inside else 0.16,
                         radius=13, title=title)  # fmt: skip
        self.drawing.text(x + width / 2, y + 17, name_of(step), look="on-colour" if inside else "",
                          anchor="middle", title=title)  # fmt: skip
        self.places[rank.rank, number] = (x, x + width, y + _STEP / 2)

    def _arrow(
        self, bend: float, sender: RankPlan, sent: int, receiver: RankPlan, received: int
    ) -> None:
        """From a send's right side round to the receive's, both of one stage."""
        _, x1, y1 = self.places[sender.rank, sent]
        _, x2, y2 = self.places[receiver.rank, received]
        message = sender.steps[sent]["message"]
        self.drawing.path(
            f"M{x1:g} {y1:g} C{x1 + bend:g} {y1:g} {x2 + bend:g} {y2:g} {x2 + 2:g} {y2:g}",
            colour=colour_of(sender.cluster), arrow=True, look="wire",
            title=f"message {message}: rank {sender.rank} to rank {receiver.rank}",
        )  # fmt: skip

    def pipeline(self, top: float) -> None:
        """Draws when each stage starts each slice; a column is one slice's time."""
        slices = self.plan["slices"]
        shown = min(slices["number"], _SLICES)
        if shown < 2 or self.plan["stages"] < 2:
            return
        text = f"in time: {slices['number']:,} slices, up to {slices['slots']} in flight"
        self.drawing.text(_MARGIN, top + 22, text, look="title")
        for stage, lag in enumerate(slices["lag"]):
            y = top + 36 + stage * (_ROW + 4)
            self.drawing.text(_MARGIN + 12, y + 16, f"stage {stage}", look="muted")
            for number in range(shown):
                x = _MARGIN + _LABEL + 14 + (number + lag) * (_CELL + 4)
                self.drawing.box(x, y, _CELL, _ROW, colour="var(--muted)", radius=5,
                                 opacity=0.12 + 0.1 * (number % 2))  # fmt: skip
                self.drawing.text(x + _CELL / 2, y + 16.5, str(number), anchor="middle")
            if slices["number"] > shown:
                x = _MARGIN + _LABEL + 18 + (shown + lag) * (_CELL + 4)
                self.drawing.text(x, y + 16, "…", look="muted")


def draw(plan: Description) -> str:
    """The picture, an SVG document; of at most MOST_RANKS ranks, else ValueError."""
    if len(plan.ranks) > MOST_RANKS:
        raise ValueError(
            f"a picture shows at most {MOST_RANKS} ranks, and the plan lists {len(plan.ranks)}: "
            "give --rank"
        )
    lanes = _Lanes(plan)
    lanes.pipeline(lanes.draw())
    return lanes.drawing.to_svg(_MARGIN, f"the plan of {plan.call}")
