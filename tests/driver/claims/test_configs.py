"""Merging of configs, field by field, and what is wrong with them."""

from typing import Any

import pytest

from driver.errors import RefusedError
from driver.options import in_users_words
from models import InfeasibleError
from tests.driver.claims.documents import Node, claim, config, cpuset, options, result
from tests.driver.claims.machines import FOUR_NODES, MACHINE


def merged(*configs: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """The options of a request ``r/sub`` that differ from the solver's own defaults."""
    node = Node(FOUR_NODES, **MACHINE, **defaults)
    (request,) = node.wish(claim(result("r/sub", "cpudevmachine", "4"), configs=configs)).requests
    return request.model_dump(exclude_defaults=True, exclude={"name", "cpus", "within"})


def test_the_claim_comes_over_its_class_and_the_class_over_the_defaults_field_by_field() -> None:
    assert merged(
        options("FromClaim", numaMin=2),
        options("FromClass", numaMin=3, preferL3=True),
        fit="loose",
        numaMin=4,
        allocationPolicy="distributed",
    ) == {"numa_min": 2, "prefer_l3": True, "fit": "loose", "policy": "distributed"}


@pytest.mark.parametrize(
    ("said", "default"),
    [
        ({"allocationPolicy": "packed"}, {"allocationPolicy": "distributed"}),
        ({"threads": "pack"}, {"threads": "spread"}),
        ({"strict": False}, {"strict": True}),
        ({"fit": "tight"}, {"fit": "loose"}),
    ],
)
def test_a_claim_can_take_back_what_is_the_default(said: dict[str, Any], default: dict[str, Any]) -> None:
    assert merged(options(**said), **default) == {}


def test_a_null_is_not_said() -> None:
    assert merged(options(numaMin=None), numaMin=4) == {"numa_min": 4}


def test_configs_of_other_drivers_are_ignored_whatever_they_are() -> None:
    for parameters in (None, 7, {"apiVersion": "gpu.example.com/v1"}):
        foreign = {"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": parameters}}
        assert merged(foreign, options(numaMin=2)) == {"numa_min": 2}


def test_a_config_applies_to_a_request_by_its_full_or_base_name_or_to_all() -> None:
    assert merged(
        options(requests=["r"], fit="loose"),
        options(requests=["r/sub"], preferL3=True),
        options(requests=["x", "r/other"], numaMax=1),
        options(requests=[], numaMin=2),
    ) == {"fit": "loose", "prefer_l3": True, "numa_min": 2}


def test_each_request_has_the_options_that_apply_to_it() -> None:
    configs = [options(requests=["a"], numaMin=2), options(requests=["b"], numaMin=3), options(preferL3=True)]
    both = claim(result("a", "cpudevmachine", "2"), result("b", "cpudevmachine", "2"), configs=configs)
    found = Node(FOUR_NODES, **MACHINE).wish(both).requests
    assert [(each.name, each.numa_min, each.prefer_l3) for each in found] == [("a", 2, True), ("b", 3, True)]


def test_equal_values_of_one_key_within_one_source_are_no_contradiction() -> None:
    twice = options(numaMin=2, strict=["numaMin", "near"]), options(numaMin=2, strict=["near", "numaMin"])
    assert merged(*twice) == {"numa_min": 2, "strict": frozenset({"numa_min", "near"})}


@pytest.mark.parametrize("source", ["FromClass", "FromClaim"])
@pytest.mark.parametrize(
    ("key", "values"),
    [("numaMin", (2, 3)), ("fullCores", (True, False)), ("allocationPolicy", ("packed", "distributed"))],
)
def test_different_values_of_one_key_within_one_source_are_an_error(
    source: str, key: str, values: tuple[Any, Any]
) -> None:
    with pytest.raises(RefusedError) as refused:
        merged(*(options(source, **{key: value}) for value in values))
    assert "claim default/cpus" in refused.value.message
    assert f"request r/sub: {key}: two configs of one source say different things" in refused.value.message


def test_different_values_for_different_requests_are_no_error() -> None:
    assert merged(options(requests=["r"], numaMin=2), options(requests=["x"], numaMin=3)) == {"numa_min": 2}


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"numaMim": 2}, "numaMim: unknown key"),
        ({"numa_min": 2}, "numa_min: unknown key"),
        ({"allocationPolicy": "spread"}, "allocationPolicy: Input should be 'packed' or 'distributed'"),
        ({"numaMin": 0}, "numaMin: expected a number of NUMA nodes from 1 to 4096, or all"),
        ({"numaMin": "2"}, "numaMin: expected a number of NUMA nodes from 1 to 4096, or all"),
        ({"fullCores": "yes"}, "fullCores: Input should be a valid boolean"),
        ({"cpus": 4}, "cpus: unknown key"),
        ({"within": "0-3"}, "within: unknown key"),
        ({"name": "x"}, "name: unknown key"),
        ({"threads": "spread", "fullCores": True}, "threads: spread and fullCores contradict each other"),
        ({"numaMin": 3, "numaMax": 2}, "numaMin 3 is above numaMax 2"),
        ({"numaIds": "0-99999999999"}, "numaIds: CPU 99999999999 is above"),
        (
            {"strict": ["policy"]},
            "strict: 'policy' is not a preference; the preferences are: allocationPolicy, numaMin",
        ),
        ({"alocationPolicy": "packed"}, "alocationPolicy: unknown key; is it allocationPolicy?"),
        ({"full_cores": True}, "full_cores: unknown key; is it fullCores?"),
        ({"strict": ["fit"]}, "strict: 'fit' is not a preference; the preferences are: allocationPolicy, numaMin"),
        ({"strict": [["near"]]}, "strict: expected true, false or a list of preferences"),
        ({"near": "x" * 300}, "near: String should have at most 253 characters"),
        ({"kind": "Other"}, "kind: 'Other' is not CpuClaimConfig"),
        ({"kind": None}, "kind: 'None' is not CpuClaimConfig"),
        ({"apiVersion": "dra.cpu/v9"}, "apiVersion: 'dra.cpu/v9' is neither"),
        ({"apiVersion": ["v1alpha1"]}, "apiVersion: \"['v1alpha1']\" is neither"),
    ],
    ids=str,
)
def test_a_wrong_config_is_an_error_that_names_claim_request_and_key(said: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError) as refused:
        merged(options(**said))
    assert refused.value.reason == "BadConfig"
    assert "claim default/cpus" in refused.value.message
    assert "request r/sub: " + says in refused.value.message


@pytest.mark.parametrize("parameters", [None, [], "packed", 7])
def test_parameters_that_are_no_object_are_refused(parameters: Any) -> None:
    with pytest.raises(RefusedError, match="request r/sub: the config's parameters are no object"):
        merged(config(parameters))


def test_options_that_contradict_each_other_only_once_merged_are_refused() -> None:
    with pytest.raises(RefusedError, match="threads: spread and fullCores contradict each other; drop one"):
        merged(options("FromClass", threads="spread"), options(fullCores=True))


@pytest.mark.parametrize("near", ["eth9", "4096", "x\n\x1b"], ids=range(3))
def test_a_device_that_this_node_does_not_have_is_nothing_to_be_near_to(near: str) -> None:
    with pytest.raises(RefusedError, match=r"claim default/cpus .* request r/sub: near: ") as refused:
        merged(options(near=near))
    assert refused.value.reason == "BadConfig"
    assert refused.value.message.isprintable()
    assert merged(options(near="0-1")) == {"near": "0-1"}


def test_what_the_solver_says_of_options_is_said_by_the_names_that_users_know() -> None:
    with pytest.raises(InfeasibleError) as infeasible:
        Node(FOUR_NODES, **MACHINE).shares(
            claim(result("r", "cpudevmachine", "4"), configs=[options(numaIds="7", preferL3=True)])
        )
    assert in_users_words(str(infeasible.value)).endswith("Request 'r' would be placed with numaIds left out")


def test_memory_is_bound_if_one_of_the_requests_wants_it() -> None:
    node = Node(FOUR_NODES, **MACHINE)
    results = result("a", "cpudevmachine", "1"), result("b", "cpudevmachine", "1")
    assert node.wish(claim(*results)).memory == "none"
    assert node.wish(claim(*results, configs=[options(requests=["b"], memory="bind")])).memory == "bind"


def test_unknown_keys_beside_a_cpuset_only_warn_and_only_about_the_first() -> None:
    unknown = {f"k{i}\n": i for i in range(20)}
    document = config(
        {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": "4", "policy": "packed"}, "colour": "red"}
    )
    node, one = Node(FOUR_NODES, **MACHINE), result("r", "cpudevmachine", "1")
    found = node.wish(claim(one, configs=[document]))
    assert found.given == {"r": frozenset({4})}
    assert [note.partition("request r: ")[2] for note in found.notes] == [
        "'colour': unknown key, ignored",
        "'cpuConfig.policy': unknown key, ignored",
    ]
    many = node.wish(claim(one, configs=[cpuset("4", **unknown)])).notes
    assert len(many) == 5
    assert all(note.isprintable() for note in many)
