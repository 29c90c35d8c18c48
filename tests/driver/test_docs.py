"""The driver's pages say what the code says: every field, flag, option, condition, reason, metric and test."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from driver.cli import check, run, state
from driver.conditions import Condition, Conditions
from driver.config import Config, read_config
from driver.errors import Reason
from driver.gauges import Gauges
from driver.ledger.entry import Entry, Grant, Shown, Snapshot
from driver.metadata import GROUP, VERSIONS, Metadata
from driver.metrics import PREFIX, Metrics
from driver.node import NodeCPUs
from driver.options import Options
from driver.solving.client import Why
from topologies import synthetic

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs/driver").glob("*.md"))}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`(test_[a-z0-9_]+(?:\[[^`]+\])?)`")


def row(name: str, default: object) -> str:
    """How a line of a table begins that has a name and its default."""
    return f"| `{name}` | {_shown(default)} |"


def _shown(default: object) -> str:
    if default is None:
        return "not set"
    text = str(default).lower() if isinstance(default, bool) else str(default or '""')
    return '`""`' if default == frozenset() else f"`{text}`"


def written(name: str, field: FieldInfo) -> str:
    """The name of a field as files have it."""
    alias = field.validation_alias
    return str(alias.choices[0] if isinstance(alias, AliasChoices) else alias or name)


def rows(model: type[Options], names: Iterable[str]) -> list[str]:
    return [row(written(name, model.model_fields[name]), model.model_fields[name].default) for name in names]


def test_every_field_of_the_configuration_is_described_with_its_default() -> None:
    own = [name for name in Config.model_fields if name not in Options.model_fields]
    missing = [each for each in rows(Config, own) if each not in PAGES["configuration.md"]]
    assert len(own) >= 16
    assert not missing


def test_every_placement_option_is_described() -> None:
    assert not [each for each in rows(Options, Options.model_fields) if each not in PAGES["configuration.md"]]


def flags(command: click.Command) -> Mapping[str, Any]:
    found = [each for each in command.params if isinstance(each, click.Option)]
    return {each.opts[0]: each.default if each.default in ("host", "table", 4) else None for each in found}


@pytest.mark.parametrize("command", [run.command, check.command, state.command], ids=lambda each: each.name)
def test_every_flag_is_described_with_its_default(command: click.Command) -> None:
    missing = [row(name, default) for name, default in flags(command).items()]
    assert not [each for each in missing if each not in PAGES["configuration.md"]]


def test_the_example_of_a_configuration_is_one(tmp_path: Path) -> None:
    (example,) = [each for each in fenced("configuration.md", "yaml") if "reservedCPUs" in each]
    file = tmp_path / "config.yaml"
    file.write_text(example)
    assert read_config(file).group_by == "machine"


def fenced(page: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", PAGES[page], re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_every_example_in_yaml_can_be_read(page: str) -> None:
    for text in fenced(page, "yaml"):
        assert isinstance(yaml.safe_load(text), dict)


def test_every_condition_and_reason_is_explained() -> None:
    page = PAGES["troubleshooting.md"]
    assert not [each for each in (*get_args(Condition), *get_args(Reason)) if f"\n| `{each}` | " not in page]


def test_every_metric_is_named() -> None:
    machine = synthetic.build("numa:1 core:4 cpu:1")
    snapshot = Snapshot(NodeCPUs.of(machine), {})
    metrics = Metrics()
    gauges = Gauges(machine, lambda: snapshot, Conditions())
    names = {family.name for registry in (metrics.registry, gauges) for family in registry.collect()}
    ours = {name.removeprefix(f"{PREFIX}_") for name in names if name.startswith(PREFIX)}
    section = PAGES["troubleshooting.md"].partition("## Metrics")[2]
    assert len(ours) > 15
    assert not [name for name in ours if not re.search(rf"`{name}(_total|_info)?`", section)]
    assert not [why for why in get_args(Why) if f"`{why}`" not in section]


def test_every_key_that_state_prints_is_described() -> None:
    machine, entry = synthetic.build("numa:1 core:4 cpu:1"), Entry(uid="a", cpuset=frozenset({1}))
    found = state.as_document("node-1", machine, state.Holdings([entry]))
    keys = {*found, *found["claims"][0]}
    section = PAGES["troubleshooting.md"].partition("## By symptom")[0]
    assert not [key for key in keys if f"`{key}`" not in section]


def test_where_containers_find_their_metadata_and_what_it_adds_is_described(tmp_path: Path) -> None:
    grant = Grant(request="REQUEST", pool="p", device="d", cpus=1)
    shown = {"d": Shown(cpus=frozenset({1}))}
    entry = Entry(uid="a", namespace="n", name="CLAIM", cpuset=frozenset({1}), grants=(grant,), shown=shown)
    section = PAGES["quickstart.md"].partition("## What a container can read")[2].partition("\n## ")[0]
    for each in (entry, entry.model_copy(update={"pod_claim": "POD_CLAIM"})):
        Metadata(tmp_path, tmp_path).write(each)
        spec = json.loads((tmp_path / "dra.cpu_metadata_a_REQUEST.json").read_text())
        (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
        assert mount["containerPath"] in section
    document, _ = json.JSONDecoder().raw_decode((tmp_path / "a_REQUEST.json").read_text())
    attributes = document["requests"][0]["devices"][0]["attributes"]
    assert len(attributes) == 2
    assert not [name for name in attributes if f"| `{name}` |" not in section]
    assert not [version for version in VERSIONS if f"`{version}`" not in section.replace(f"{GROUP}/", "")]


def test_every_test_that_a_page_names_exists() -> None:
    named = {test for page in PAGES.values() for test in TEST.findall(page)}
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "tests/driver/claims"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    there = {line.partition("::")[2] for line in run.stdout.splitlines() if "::" in line}
    there |= {test.partition("[")[0] for test in there}
    assert len(named) > 20
    assert not named - there


def anchors(text: str) -> set[str]:
    """Of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each).lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_project_lead_somewhere(page: str) -> None:
    folder = ROOT / "docs/driver"
    for target in LINK.findall(PAGES[page]):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = (folder / name).resolve() if name else folder / page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), target


def test_every_example_is_listed() -> None:
    names = {path.name for path in (ROOT / "deploy/examples").iterdir()}
    assert names == set(re.findall(r"^\| `([a-z0-9-]+\.yaml)` \|", PAGES["quickstart.md"], re.MULTILINE))
