"""``import cpusat`` offers the public names, each imported when it is first used."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import cpusat
import models
import solver.engine

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", cpusat.__all__)
def test_every_public_name_is_there(name):
    assert getattr(cpusat, name) is not None


def test_names_are_those_of_their_homes():
    assert cpusat.solve is solver.engine.solve
    assert cpusat.Request is models.Request
    assert cpusat.__version__ == version("cpusat")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="solv"):
        _ = cpusat.solv


def test_importing_the_facade_imports_no_engine():
    code = "import cpusat, sys; print(sorted({'solver', 'models', 'numpy', 'networkx'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
