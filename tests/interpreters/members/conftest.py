"""Every program of devices here runs at once, and is counted."""

import pytest

from fnx.core import config
from fnx.lowering.cpu.loader import team
from fnx.lowering.cpu.processor import thresholds


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    """Teams for whatever there is, and how often one ran."""
    if config.backend.value != "cpu":
        pytest.skip("teams of threads are the CPU backend's alone")
    monkeypatch.setattr(thresholds, "TEAM", -1)
    monkeypatch.setattr(thresholds, "EXCHANGE", 0)
    monkeypatch.setattr(thresholds, "CROWDED_EXCHANGE", 0)
    monkeypatch.setattr(team, "processors", lambda: 2)
    count = []
    run = team.TeamProgram.run

    def counted(self, *args):
        count.append(self.size)
        return run(self, *args)

    monkeypatch.setattr(team.TeamProgram, "run", counted)
    with config.num_devices(8):
        yield count
