"""The soft limit of open files is raised as far as is wanted and allowed."""

import resource

import pytest

from pegasus.host import raise_descriptor_limit


@pytest.fixture
def limits(monkeypatch):
    state = {"limits": (1024, 4096), "refuses": False}

    def setrlimit(_, limits):
        if state["refuses"]:
            raise ValueError("not allowed to raise maximum limit")
        state["limits"] = limits

    monkeypatch.setattr(resource, "getrlimit", lambda _: state["limits"])
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    return state


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 1 << 20), (8192, 1 << 20)),
        ((1024, 4096), (4096, 4096)),
        ((256, resource.RLIM_INFINITY), (8192, resource.RLIM_INFINITY)),
        ((100_000, 1 << 20), (100_000, 1 << 20)),
    ],
)
def test_the_limit_is_raised_and_never_lowered(limits, before, after):
    limits["limits"] = before
    assert raise_descriptor_limit() == after[0]
    assert limits["limits"] == after


def test_a_system_that_refuses_leaves_the_limit_as_it_was(limits):
    limits["refuses"] = True
    assert raise_descriptor_limit() == 1024


def test_no_limit_at_all_is_enough(limits):
    limits["limits"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert raise_descriptor_limit() == 8192
