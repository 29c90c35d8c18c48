import gc
import json

import pytest

from driver.cluster import objects
from driver.cluster.objects import Object, decode

LARGE = "x" * (objects.SMALL_PART + 1)


def found(**status: object) -> Object:
    return decode(json.dumps({"metadata": {"name": "a", "uid": "u"}, "status": status}).encode(), Object)


def test_a_claim_is_its_names_its_allocation_and_who_may_carry_it() -> None:
    status = {"allocation": {"devices": {"results": [1.5, None, "ä"]}}, "reservedFor": [{"uid": "p"}]}
    assert objects.claim(found(**status, devices=[7]), 0.0) == {
        "metadata": {"name": "a", "namespace": "", "uid": "u"},
        "status": status,
    }


@pytest.mark.parametrize("text", [b'{"metadata": {}}', b'{"metadata": {}, "status": null}'])
def test_a_claim_without_a_status_has_nothing(text: bytes) -> None:
    assert objects.claim(decode(text, Object), 0.0)["status"] == {"allocation": None, "reservedFor": None}


@pytest.mark.parametrize(
    "text",
    [b'{"metadata": 7}', b'{"metadata": {"uid": 7}}', b'{"metadata": {}, "status": [1]}', b"{}", b"[" * 100_000],
)
def test_what_is_no_claim_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        objects.claim(decode(text, Object), 0.0)


@pytest.mark.parametrize(
    "allocation",
    ["x" * (objects.LARGEST_PART + 1), [0] * (objects.MOST_PARTS + 1), [[]] * (objects.MOST_PARTS // 2 + 1)],
)
def test_what_is_larger_than_anything_valid_is_not_parsed(allocation: object) -> None:
    with pytest.raises(ValueError, match="larger than any that is valid"):
        objects.claim(found(allocation=allocation), 0.0)


@pytest.mark.parametrize("large", [LARGE, [0] * (objects.FEW_PARTS + 1)], ids=["long", "many"])
def test_there_are_only_few_large_objects_at_a_time(large: object) -> None:
    """A place is free again when the object is not needed any more."""
    for _ in range(2):
        there = [objects.claim(found(allocation=large), 0.0) for _ in range(objects.MOST_LARGE)]
        for _ in range(2):
            with pytest.raises(ValueError, match="other large objects"):
                objects.claim(found(allocation=large), 0.01)
        assert objects.claim(found(allocation="small"), 0.0), "small ones need no place"
        there.clear()


def test_a_large_object_that_cannot_be_parsed_takes_no_place() -> None:
    """Too deep, or no JSON: the place is free once the error is dealt with."""
    for _ in range(2 * objects.MOST_LARGE):
        with pytest.raises((RecursionError, ValueError)):
            objects.claim(
                decode(
                    b'{"metadata": {}, "status": {"allocation": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}", Object
                ),
                0.0,
            )
    gc.collect()
    assert objects.claim(found(allocation=LARGE), 0.0)


def test_a_slice_is_its_names_and_all_of_its_spec() -> None:
    spec = {"driver": "dra.cpu", "nodeName": "n", "unheardOf": {"a": [1]}}
    each = decode(json.dumps({"metadata": {"name": "s", "labels": {"a": "b"}}, "spec": spec}).encode(), Object)
    assert objects.slice_(each, 0.0) == {"metadata": {"name": "s", "namespace": "", "uid": ""}, "spec": spec}
    assert objects.belongs_to(each, "dra.cpu", "n")
    assert not objects.belongs_to(each, "dra.cpu", "m")
    assert not objects.belongs_to(each, "gpu.example", "n")
