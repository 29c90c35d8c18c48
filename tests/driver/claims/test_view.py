from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.claims.view import ClaimView
from driver.errors import RefusedError
from driver.ports import ClaimRef
from tests.driver.claims.documents import REF, claim, config, options, result

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_only_our_results_and_configs_are_read() -> None:
    other = {**result("gpu", "gpu-0"), "driver": "gpu.example.com"}
    foreign = {"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": {"x": 1}}}
    view = ClaimView.read(claim(other, result("cpus", "cpudevnuma000", "4"), configs=[foreign]), REF)
    assert [(grant.request, grant.device, grant.cpus) for grant in view.grants] == [("cpus", "cpudevnuma000", 4)]
    assert view.configs == ()
    assert view.pods == {"pod-1"}


@pytest.mark.parametrize(
    ("quantity", "cpus"), [("4", 4), (4, 4), ("2000m", 2), ("1k", 1000), ("1Ki", 1024), ("4.0", 4)]
)
def test_a_quantity_is_read_as_kubernetes_writes_it(quantity: Any, cpus: int) -> None:
    view = ClaimView.read(claim(result("cpus", "cpudevmachine", quantity)), REF)
    assert view.grants[0].cpus == cpus


@pytest.mark.parametrize(
    ("quantity", "says"),
    [
        ("2.5", "not a whole number of CPUs"),
        ("0", "not from 1 to 65536"),
        ("-1", "not from 1 to 65536"),
        (None, "is missing from consumedCapacity"),
        ("", "no quantity"),
        ("four", "no quantity"),
        ("1e99999999", "no quantity"),
        ("9" * 40, "no quantity"),
        (True, "no quantity"),
        ("nan", "no quantity"),
        ("100000000", "not from 1 to 65536"),
    ],
)
def test_a_bad_quantity_is_refused_and_the_request_named(quantity: Any, says: str) -> None:
    with pytest.raises(RefusedError, match=says) as refused:
        ClaimView.read(claim(result("cpus", "cpudevmachine", quantity)), REF)
    assert refused.value.reason == "BadClaim"
    assert "default/cpus" in refused.value.message
    assert "request cpus" in refused.value.message


def test_a_single_cpu_device_consumes_one_cpu() -> None:
    view = ClaimView.read(claim(result("cpus", "cpudev003")), REF, counted=False)
    assert view.grants[0].cpus == 1


def test_admin_access_is_refused() -> None:
    with pytest.raises(RefusedError, match="cannot give CPUs") as refused:
        ClaimView.read(claim(result("cpus", "cpudevmachine", "4", adminAccess=True)), REF)
    assert refused.value.reason == "AdminAccess"


def test_another_claim_of_the_same_name_is_not_taken_for_ours() -> None:
    with pytest.raises(RefusedError) as refused:
        ClaimView.read(claim(result("cpus", "cpudevmachine", "4")), ClaimRef("other-uid", "default", "cpus"))
    assert refused.value.reason == "ClaimGone"


def test_a_claim_without_allocation_is_refused() -> None:
    document = claim()
    del document["status"]["allocation"]
    with pytest.raises(RefusedError, match="is not allocated"):
        ClaimView.read(document, REF)


@pytest.mark.parametrize(
    "other",
    [
        claim(result("cpus", "cpudevmachine", "5")),
        claim(result("cpus", "cpudevnuma000", "4")),
        claim(result("cpus", "cpudevmachine", "4", shareID="s")),
        claim(result("cpus", "cpudevmachine", "4"), configs=[options(fullCores=True)]),
        claim(result("cpus", "cpudevmachine", "4"), result("more", "cpudevmachine", "1")),
    ],
)
def test_the_fingerprint_tells_an_allocation_from_another(other: dict[str, Any]) -> None:
    one = ClaimView.read(claim(result("cpus", "cpudevmachine", "4")), REF)
    assert ClaimView.read(other, REF).fingerprint != one.fingerprint


def test_the_fingerprint_is_blind_to_who_may_carry_the_claim() -> None:
    views = [ClaimView.read(claim(result("cpus", "d", "4"), pods=pods), REF) for pods in (("a",), ("a", "b"))]
    assert views[0].fingerprint == views[1].fingerprint


@given(json_values)
@settings(max_examples=200, deadline=None)
def test_whatever_a_claim_says_it_is_read_or_refused(value: Any) -> None:
    document = claim(result("cpus", "cpudevmachine", "4"))
    for place in (("status",), ("status", "allocation"), ("status", "allocation", "devices"), ("metadata",)):
        spoilt = {**document, "status": {**document["status"]}}
        inner: dict[str, Any] = spoilt
        for step in place[:-1]:
            inner[step] = dict(inner[step])
            inner = inner[step]
        inner[place[-1]] = value
        reasons = []
        try:
            ClaimView.read(spoilt, REF)
        except RefusedError as error:
            reasons.append(error.reason)
        assert set(reasons) <= {"BadClaim", "ClaimGone"}


def test_a_config_that_is_nested_too_deeply_is_refused() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RefusedError, match="nested too deeply"):
        ClaimView.read(claim(result("cpus", "d", "4"), configs=[config(deep)]), REF)
