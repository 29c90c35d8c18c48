"""What a kubelet has handed out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import BadInputError
from topologies.readers.kubelet import CPUManagerState, read_cpu_manager_state, read_state


def test_held_cpus_are_named_by_pod_and_container():
    state = {"policyName": "static", "defaultCpuSet": "0,4-7", "entries": {"uid": {"a": "1", "b": "2-3"}}}
    held, default = read_cpu_manager_state(json.dumps(state | {"checksum": 1}))
    assert held == {"uid/a": frozenset({1}), "uid/b": frozenset({2, 3})}
    assert default == frozenset({0, 4, 5, 6, 7})


@pytest.mark.parametrize("entries", [{}, {"entries": None}, {"entries": {}}])
def test_entries_may_be_absent(entries: dict[str, None]):
    state = {"policyName": "static", "defaultCpuSet": "0-1"}
    assert read_cpu_manager_state(json.dumps(state | entries)) == ({}, frozenset({0, 1}))


def test_policy_none_holds_nothing_and_has_no_default():
    assert read_cpu_manager_state('{"policyName": "none", "defaultCpuSet": ""}') == ({}, None)


def test_an_empty_default_of_the_static_policy_is_an_empty_set():
    assert read_cpu_manager_state('{"policyName": "static", "defaultCpuSet": ""}') == ({}, frozenset())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("invalidContent", "state: line 1, column 1: is not valid JSON: Expecting value"),
        ("", "state: is empty"),
        ("[]", "state: Input should be a valid dictionary"),
        ('{"defaultCpuSet": "0"}', "state: policyName: Field required"),
        ('{"policyName": "static", "defaultCpuSet": "a"}', "state: defaultCpuSet: 'a' is not a CPU number"),
        (
            '{"policyName": "static", "entries": {"u": {"c": "1-"}}}',
            "state: entries.u.c: '1-' is not a CPU number",
        ),
        (
            '{"policyName": "static", "entries": {"u": "1"}}',
            "state: entries.u: Input should be a valid dictionary",
        ),
        ('{"policyName": "static", "policyName": "none"}', "state: key 'policyName' is given twice"),
    ],
)
def test_a_broken_state_is_one_clear_error(text: str, message: str):
    with pytest.raises(BadInputError) as error:
        read_cpu_manager_state(text, file="state")
    assert str(error.value).startswith(message)


@given(st.text(max_size=60))
def test_no_text_raises_anything_but_bad_input(text: str):
    with pytest.raises(BadInputError):
        read_cpu_manager_state(text)


def test_cpus_of_whole_pods_are_read_where_there_are_some():
    state = {"policyName": "static", "defaultCpuSet": "0", "podEntries": {"uid": {"cpuSet": "2-5"}, "other": {}}}
    found = read_state(json.dumps(state))
    assert (found.policy, found.default, found.containers) == ("static", {0}, {})
    assert found.pods == {"uid": {2, 3, 4, 5}, "other": frozenset()}


def test_policy_none_has_given_nothing_whatever_entries_stand_there():
    state = {"policyName": "none", "defaultCpuSet": "", "entries": {"u": {"c": "1"}}, "podEntries": {"u": {}}}
    assert read_state(json.dumps(state)) == CPUManagerState("none")
