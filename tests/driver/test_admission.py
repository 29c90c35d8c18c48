"""The admission policy: whom it is for, what it allows and what not, with its expressions evaluated."""

from pathlib import Path
from typing import Any

import celpy
import pytest

from tests.driver.manifests import Document, kustomized, only

NODE_NAME = "authentication.kubernetes.io/node-name"
ACCOUNT = "system:serviceaccount:kube-system:cpusat-driver"


def evaluate(expression: str, **variables: Any) -> Any:
    """What a CEL expression comes to."""
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    return program.evaluate({name: celpy.json_to_cel(value) for name, value in variables.items()})


def request(user: str = ACCOUNT, operation: str = "CREATE", node: str | None = "node-1") -> Document:
    info: Document = {"username": user}
    if node is not None:
        info["extra"] = {NODE_NAME: [node]}
    return {"userInfo": info, "operation": operation}


def applies(policy: Document, user: str) -> bool:
    """Whether the policy is for a user."""
    return all(evaluate(each["expression"], request=request(user)) for each in policy["spec"]["matchConditions"])


def slice_of(node: str | None = "node-1", driver: str = "dra.cpu") -> Document:
    spec: Document = {"driver": driver}
    return {"spec": spec if node is None else {**spec, "nodeName": node}}


def refusals(asked: Document, new: Document | None, old: Document | None) -> list[str]:
    """Why the policy denies a request; nothing where it allows it."""
    spec, given = only("ValidatingAdmissionPolicy")["spec"], {"request": asked, "object": new, "oldObject": old}
    variables: Document = {}
    for each in spec["variables"]:
        variables[each["name"]] = evaluate(each["expression"], **given, variables=variables)
    denied = [each for each in spec["validations"] if not evaluate(each["expression"], variables=variables)]
    return [
        each.get("message") or str(evaluate(each["messageExpression"], variables=variables)) for each in denied
    ]


@pytest.mark.parametrize(
    "settings",
    [{}, {"namespace": "cpus"}, {"namespace": "cpus", "namePrefix": "our-", "nameSuffix": "-1"}],
    ids=["as it is", "namespace", "names"],
)
def test_it_is_for_the_account_that_the_pod_runs_as_wherever_a_cluster_puts_it(
    settings: dict[str, str], tmp_path: Path
) -> None:
    objects = kustomized(tmp_path, {"resources": ["../deploy/base"], **settings})
    daemon_set, policy = only("DaemonSet", objects), only("ValidatingAdmissionPolicy", objects)
    account = daemon_set["spec"]["template"]["spec"]["serviceAccountName"]
    assert applies(policy, f"system:serviceaccount:{daemon_set['metadata']['namespace']}:{account}")


@pytest.mark.parametrize(
    "user",
    [
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:serviceaccount:cpusat-driver:other",
        "system:node:node-1",
        "kubernetes-admin",
        "cpusat-driver",
    ],
)
def test_it_is_for_nobody_else(user: str) -> None:
    assert not applies(only("ValidatingAdmissionPolicy"), user)


def test_it_denies_whatever_is_done_to_slices() -> None:
    policy = only("ValidatingAdmissionPolicy")
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["resourceslices"]
    assert set(rule["operations"]) == {"CREATE", "UPDATE", "DELETE"}
    binding = only("ValidatingAdmissionPolicyBinding")["spec"]
    assert binding == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy["spec"]["failurePolicy"] == "Fail"


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_the_driver_may_change_the_slices_of_its_node(operation: str) -> None:
    new, old = (None, slice_of()) if operation == "DELETE" else (slice_of(), None)
    assert refusals(request(operation=operation), new, old) == []


@pytest.mark.parametrize("operation", ["CREATE", "DELETE"])
@pytest.mark.parametrize(
    ("node", "of", "why"),
    [
        (None, slice_of(), "the token names no node"),
        ("node-2", slice_of(), "the driver on node node-2 may change the slices of this node only"),
        ("node-1", slice_of(None), "the driver on node node-1 may change the slices of this node only"),
        ("node-1", slice_of(driver="gpu.example.com"), "the driver may change slices of dra.cpu only"),
    ],
)
def test_it_may_change_no_others(operation: str, node: str | None, of: Document, why: str) -> None:
    new, old = (None, of) if operation == "DELETE" else (of, slice_of())
    assert any(each.startswith(why) for each in refusals(request(operation=operation, node=node), new, old))
