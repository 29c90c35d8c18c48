"""CPU lists: what the kernel writes is read, what is written is read again, and hostile texts are refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from models import MAX_CPU, CPUSet, format_cpuset, format_mask, from_mask, parse_cpuset, to_mask

cpus = st.frozensets(st.integers(0, 400)) | st.frozensets(st.integers(0, MAX_CPU), max_size=20)

READ = {
    "nothing": ("", []),
    "only a line's end": ("\n", []),
    "a number": ("7", [7]),
    "a range": ("0-3", [0, 1, 2, 3]),
    "a range of one": ("5-5", [5]),
    "numbers and ranges in any order, twice": ("8,0-2,1,8", [0, 1, 2, 8]),
    "spaces around parts": (" 0-1 , 4\n", [0, 1, 4]),
    "what procfs ends in": ("0-1\n\0", [0, 1]),
    "every second": ("0-6:2", [0, 2, 4, 6]),
    "two of each four": ("0-9:2/4", [0, 1, 4, 5, 8, 9]),
    "the highest CPU": (str(MAX_CPU), [MAX_CPU]),
    "leading zeros": ("007", [7]),
}

REFUSED = {
    "a word": ("all", "'all' is not a CPU number or a range such as 0-3"),
    "a sign": ("-1", "'-1' is not a CPU number"),
    "an open range": ("3-", "'3-' is not a CPU number"),
    "two dashes": ("1-2-3", "'1-2-3' is not a CPU number"),
    "an empty part": ("0,,1", "'' is not a CPU number"),
    "a comma at the end": ("0,", "'' is not a CPU number"),
    "a fraction": ("1.5", "'1.5' is not a CPU number"),
    "a mask": ("0xff", "'0xff' is not a CPU number"),
    "a range backwards": ("3-1", "range '3-1' runs backwards"),
    "a CPU above all kernels": ("0-65536", "CPU 65536 is above the highest number allowed, 65535"),
    "a range that would fill the memory": ("0-999999999999", "CPU 999999999999 is above the highest number"),
    "a number of a thousand digits": ("9" * 1000, "is not a CPU number"),
    "a stride of nothing": ("0-7:0", "stride in '0-7:0' must be at least 1"),
    "groups of nothing": ("0-7:1/0", "stride in '0-7:1/0' must be at least 1"),
    "a stride without a range": ("1:20", "'1:20': a stride needs a range, as in 0-31:2"),
    "groups without a range": ("4:2/4", "'4:2/4': a stride needs a range"),
    "digits of other scripts": ("\u0661-\u0663", "is not a CPU number"),
    "superscripts": ("²", "is not a CPU number"),
    "a text of megabytes": ("1," * 600_000, "CPU list of 1200000 characters is too long"),
}


class Holder(BaseModel):
    cpus: CPUSet


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ.keys())
def test_a_list_is_read(text, expected):
    assert parse_cpuset(text) == frozenset(expected)


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_list_is_refused_with_the_offending_part(text, reason):
    with pytest.raises(ValueError, match=reason.replace("(", r"\(")) as caught:
        parse_cpuset(text)
    assert len(str(caught.value)) < 200


@given(st.text(max_size=30) | st.text("0123456789-,:/ ", max_size=20))
def test_any_text_is_read_or_refused_by_a_value_error(text):
    with suppress(ValueError):
        assert all(0 <= cpu <= MAX_CPU for cpu in parse_cpuset(text))


@given(cpus)
def test_what_is_written_is_read_again(given_cpus):
    assert parse_cpuset(format_cpuset(given_cpus)) == given_cpus


@given(cpus)
def test_what_is_written_is_as_short_as_can_be(given_cpus):
    runs = sum(1 for cpu in given_cpus if cpu - 1 not in given_cpus)
    text = format_cpuset(given_cpus)
    assert len(text.split(",")) == max(runs, 1)
    assert text == format_cpuset(sorted(given_cpus, reverse=True))


@given(cpus)
def test_masks_hold_the_same_cpus(given_cpus):
    mask = to_mask(given_cpus)
    assert from_mask(mask) == given_cpus
    assert mask.bit_count() == len(given_cpus)
    assert int(format_mask(given_cpus), 16) == mask


@pytest.mark.parametrize(
    ("given_cpus", "text"), [({0, 4}, "0x11"), (set(), "0x0"), ({3, 64}, "0x10000000000000008")]
)
def test_a_mask_is_written_for_taskset(given_cpus, text):
    assert format_mask(given_cpus) == text


@given(cpus)
def test_in_json_a_set_is_a_list_of_the_kernel(given_cpus):
    holder = Holder(cpus=given_cpus)
    assert Holder.model_validate_json(holder.model_dump_json()) == holder
    assert holder.model_dump() == {"cpus": format_cpuset(given_cpus)}


@pytest.mark.parametrize("value", ["0-1", {0, 1}, [0, 1], (1, 0), range(2), frozenset({0, 1})])
def test_a_set_may_be_given_in_any_of_these_ways(value):
    assert Holder(cpus=value).cpus == {0, 1}


@pytest.mark.parametrize(
    "value", [None, 3, 1.0, {"0": 1}, ["0"], [0.0], [True], [-1], [MAX_CPU + 1], range(MAX_CPU, MAX_CPU + 2), b"0"]
)
def test_other_values_are_no_sets_of_cpus(value):
    with pytest.raises(ValidationError, match=r"CPU list such as|whole numbers from 0 to 65535"):
        Holder(cpus=value)
