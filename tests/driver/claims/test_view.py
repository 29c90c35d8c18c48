"""What is read of a ResourceClaim, and what is not."""

from typing import Any

import pytest

from driver.claims.quantity import whole_cpus
from driver.claims.view import ClaimView
from driver.errors import RefusedError
from driver.ports import ClaimRef
from tests.driver.claims.documents import REF, claim, options, result


def test_only_our_results_and_configs_are_read_whatever_the_others_are() -> None:
    other = {"request": "GPU!", "driver": "gpu.example.com", "consumedCapacity": [7], "adminAccess": True}
    foreign = {"source": "?", "opaque": {"driver": "gpu.example.com", "parameters": {"x": 1}}}
    document = claim(other, result("cpus", "cpudevnuma000", "4"), configs=[foreign, {"source": "FromClaim"}])
    view = ClaimView.read(document, REF)
    assert [(grant.request, grant.device, grant.cpus) for grant in view.grants] == [("cpus", "cpudevnuma000", 4)]
    assert view.configs == ()


def test_the_pods_that_may_carry_a_claim_are_those_it_is_reserved_for() -> None:
    document = claim(result("cpus", "d", "4"), pods=("pod-1", "../etc", "pod-2"))
    document["status"]["reservedFor"] += [
        {"resource": "podgroups", "apiGroup": "scheduling.k8s.io", "name": "g", "uid": "group-1"},
        {"resource": "pods", "apiGroup": "example.com", "name": "p", "uid": "pod-3"},
    ]
    assert ClaimView.read(document, REF).pods == {"pod-1": "name-of-pod-1", "pod-2": "name-of-pod-2"}


@pytest.mark.parametrize(
    ("annotation", "means"),
    [
        ("cpus", "cpus"),
        (None, ""),
        ("", ""),
        ("../../../etc", ""),
        ("CPUs", ""),
        ("cpus\n", ""),
        (7, ""),
        (["a"], ""),
    ],
)
def test_the_pods_word_for_a_claim_is_read_only_if_it_can_be_one(annotation: Any, means: str) -> None:
    """It becomes part of a path, and whoever makes claims can annotate them."""
    document = claim(result("cpus", "d", "4"))
    assert ClaimView.read(document, REF).pod_claim == ""
    document["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": annotation, "other": "x"}
    assert ClaimView.read(document, REF).pod_claim == means


@pytest.mark.parametrize(
    ("quantity", "cpus"),
    [("4", 4), (4, 4), ("2000m", 2), ("1k", 1000), ("1Ki", 1024), ("4.0", 4), (4.0, 4), ("+4", 4), ("1e3", 1000)],
)
def test_a_quantity_is_read_as_kubernetes_writes_it(quantity: Any, cpus: int) -> None:
    view = ClaimView.read(claim(result("cpus", "cpudevmachine", quantity)), REF)
    assert view.grants[0].cpus == cpus


@pytest.mark.parametrize(
    ("quantity", "says"),
    [
        ("2.5", "not a whole number of CPUs"),
        (2.5, "not a whole number of CPUs"),
        ("1500m", "not a whole number of CPUs"),
        ("3.9999999", "not a whole number of CPUs"),
        ("0." + "9" * 17, "not a whole number of CPUs"),
        ("0", "not from 1 to 65536"),
        (0, "not from 1 to 65536"),
        ("-1", "not from 1 to 65536"),
        ("100000000", "not from 1 to 65536"),
        ("1E", "not from 1 to 65536"),
        ("1e99", "not from 1 to 65536"),
        (None, "is missing from consumedCapacity"),
        ("", "no quantity"),
        ("four", "no quantity"),
        ("4 ", "no quantity"),
        ("4_0", "no quantity"),
        ("\N{ARABIC-INDIC DIGIT FOUR}", "no quantity"),
        ("1e99999999", "no quantity"),
        ("9" * 40, "no quantity"),
        ("nan", "no quantity"),
        (float("inf"), "no quantity"),
        (10**5000, "astronomical"),
        (True, "neither text nor a number"),
        (["4"], "neither text nor a number"),
    ],
    ids=lambda value: str(value)[:20] if not isinstance(value, int) or value < 10**9 else "huge",
)
def test_a_bad_quantity_is_refused_and_claim_and_request_are_named(quantity: Any, says: str) -> None:
    document = claim(result("cpus", "cpudevmachine"))
    document["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = {"dra.cpu/cpu": quantity}
    with pytest.raises(RefusedError, match=says) as refused:
        ClaimView.read(document, REF)
    assert refused.value.reason == "BadClaim"
    assert "claim default/cpus" in refused.value.message
    assert "request cpus: dra.cpu/cpu" in refused.value.message


@pytest.mark.parametrize("consumed", [None, {}, {"dra.cpu/memory": "4"}])
def test_a_result_that_does_not_say_how_many_is_refused(consumed: Any) -> None:
    with pytest.raises(RefusedError, match=r"request cpus: dra\.cpu/cpu is missing from consumedCapacity"):
        ClaimView.read(claim(result("cpus", "cpudevmachine", consumedCapacity=consumed)), REF)


def test_whole_numbers_are_exact_to_the_last_digit() -> None:
    assert whole_cpus("0.0009765625Ki") == 1
    with pytest.raises(ValueError, match="not a whole number"):
        whole_cpus("0.0009765626Ki")


def test_a_single_cpu_device_consumes_one_cpu() -> None:
    view = ClaimView.read(claim(result("cpus", "cpudev003")), REF, counted=False)
    assert view.grants[0].cpus == 1


def test_admin_access_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"request cpus: adminAccess .* cannot give CPUs") as refused:
        ClaimView.read(claim(result("cpus", "cpudevmachine", "4", adminAccess=True)), REF)
    assert refused.value.reason == "AdminAccess"
    assert ClaimView.read(claim(result("cpus", "cpudevmachine", "4", adminAccess=False)), REF).grants


def test_another_claim_of_the_same_name_is_not_taken_for_ours() -> None:
    with pytest.raises(RefusedError) as refused:
        ClaimView.read(claim(result("cpus", "cpudevmachine", "4")), ClaimRef("other-uid", "default", "cpus"))
    assert refused.value.reason == "ClaimGone"
    assert REF.uid in refused.value.message


def test_a_claim_without_allocation_is_refused() -> None:
    document = claim()
    del document["status"]["allocation"]
    with pytest.raises(RefusedError, match="is not allocated"):
        ClaimView.read(document, REF)


@pytest.mark.parametrize(
    "request_name", ["", "r/", "/s", "a/b/c", "r s", "r\n", "R", "r" * 64, "r/" + "s" * 64, "-r"]
)
def test_a_request_is_named_as_kubernetes_names_them(request_name: str) -> None:
    with pytest.raises(RefusedError, match=r"results\.0\.request"):
        ClaimView.read(claim(result(request_name, "cpudevmachine", "4")), REF)


def test_our_config_from_nowhere_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"config\.0\.source: Input should be 'FromClass' or 'FromClaim'"):
        ClaimView.read(claim(result("cpus", "d", "4"), configs=[options("FromSpace")]), REF)


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


def test_the_fingerprint_tells_configs_apart_by_source_requests_and_values() -> None:
    said = [options(numaMin=2), options("FromClass", numaMin=2), options(requests=["cpus"], numaMin=2), options()]
    views = [ClaimView.read(claim(result("cpus", "d", "4"), configs=[each]), REF) for each in said]
    assert len({view.fingerprint for view in views}) == len(said)


def test_the_fingerprint_is_blind_to_who_carries_the_claim_and_to_other_drivers() -> None:
    documents = [
        claim(result("cpus", "d", "4"), pods=("a",)),
        claim(result("cpus", "d", "4"), pods=("a", "b")),
        claim(result("gpu", "g", driver="gpu.example.com"), result("cpus", "d", "4"), pods=("a",)),
        claim(result("cpus", "d", 4), pods=("a",)),
    ]
    assert len({ClaimView.read(document, REF).fingerprint for document in documents}) == 1
