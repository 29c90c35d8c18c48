"""What the API server checks of ResourceSlices: its schema, strictly, and the rules that no schema can say.

The rules are those of Kubernetes' ``pkg/apis/resource/validation`` and of the API's own documentation.
"""

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from lightkube.utils.quantity import parse_quantity
from referencing import Registry, Resource

Document = dict[str, Any]

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED = re.compile(r"[a-z0-9.-]{1,63}/[A-Za-z_][A-Za-z0-9_]{0,31}")
VERSIONS = ("1.34", "1.35", "1.36", "1.37")
SCALARS, LISTS = {"int", "bool", "string", "version"}, {"ints", "bools", "strings", "versions"}


@cache
def _schema(version: str) -> Draft202012Validator:
    """As ``kubernetes_validate.validate(…, strict=True)``, which reads megabytes anew for each document."""
    folder = files("kubernetes_validate") / f"kubernetes-json-schema/v{version}.0-local-strict"
    slice_, definitions = (
        Resource.from_contents(json.loads((folder / name).read_text()))
        for name in ("resourceslice-resource-v1.json", "_definitions.json")
    )
    return Draft202012Validator(slice_.contents, registry=definitions @ (slice_ @ Registry()))


def check_schema(document: Document, version: str) -> None:
    _schema(version).validate(document)


def check_pool(documents: list[Document]) -> None:
    """All slices of a pool."""
    pools = {json.dumps(each["spec"]["pool"], sort_keys=True) for each in documents}
    assert len(pools) == 1
    assert documents[0]["spec"]["pool"]["resourceSliceCount"] == len(documents)
    names = [device["name"] for each in documents for device in each["spec"]["devices"]]
    assert len(set(names)) == len(names)
    for document in documents:
        _check_slice(document)


def _check_slice(document: Document) -> None:
    spec, metadata = document["spec"], document["metadata"]
    assert SUBDOMAIN.fullmatch(metadata["generateName"] + "x1z9f")
    assert len(metadata["generateName"]) <= 253 - 5
    assert spec["pool"]["name"] == spec["nodeName"]
    assert [owner["kind"] for owner in metadata["ownerReferences"]] == ["Node"]
    lists = [
        device for device in spec["devices"] if any(LISTS & each.keys() for each in device["attributes"].values())
    ]
    assert len(spec["devices"]) <= (64 if lists else 128)
    for device in spec["devices"]:
        _check_device(device)


def _check_device(device: Document) -> None:
    assert LABEL.fullmatch(device["name"])
    attributes, capacity = device["attributes"], device.get("capacity", {})
    assert len(attributes) + len(capacity) <= 32
    assert all(QUALIFIED.fullmatch(name) for name in (*attributes, *capacity))
    assert all(len(each) == 1 for each in attributes.values())
    values = [value for each in attributes.values() for value in _values(each)]
    assert len(values) <= 48
    assert all(len(value) <= 64 for value in values if isinstance(value, str))
    assert device.get("allowMultipleAllocations", False) == any(
        "requestPolicy" in each for each in capacity.values()
    )
    for each in capacity.values():
        _check_capacity(each)
    for mapped in device.get("nodeAllocatableResources", {}).values():
        mapping = mapped["mapping"]
        assert ("deviceMultiplier" in mapping) != ("capacityKey" in mapping)
        assert ("capacityMultiplier" in mapping) == ("capacityKey" in mapping)
        assert mapping.get("capacityKey") in (None, *capacity)


def _values(attribute: Document) -> list[Any]:
    ((kind, value),) = attribute.items()
    assert kind in SCALARS | LISTS
    assert value != []
    return value if kind in LISTS else [value]


def _check_capacity(capacity: Document) -> None:
    policy, value = capacity["requestPolicy"], parse_quantity(capacity["value"])
    amounts = {name: parse_quantity(text) for name, text in policy["validRange"].items()}
    default, least, most = parse_quantity(policy["default"]), amounts["min"], amounts["max"]
    assert 0 < least <= default <= most <= value
    if step := amounts.get("step"):
        assert (default - least) % step == 0
        assert (most - least) % step == 0
        assert least + step <= value
