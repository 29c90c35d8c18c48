"""Opaque configs: our own options, merged over the driver's defaults, and the cpuset of dra-driver-cpu."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from driver.claims.view import ClaimView, ConfigEntry
from driver.errors import RefusedError
from driver.options import KEYS, Options, in_users_words
from models import BadInputError, parse_cpuset

API_VERSION, KIND = "dra.cpu/v1", "CpuClaimConfig"
CPUSET_VERSION = "v1alpha1"
LONGEST = 10_000
"""Characters of a cpuset in a config."""

MOST_WARNINGS, LONGEST_MESSAGE = 5, 400

_CPUSET_KEYS = ("apiVersion", "kind", "cpuConfig")


@dataclass(frozen=True)
class Said:
    """What a claim and its class say of one request: options under the defaults' names, and CPUs by number.

    ``own``: without the driver's defaults. ``notes``: what was ignored.
    """

    own: Options
    options: Options
    cpuset: frozenset[int] | None
    notes: tuple[str, ...]


def said_of(view: ClaimView, request: str, defaults: Options) -> Said:
    """The merged configs of one request. Raises ``RefusedError("BadConfig")`` with claim, request and key."""
    where = f"claim {view.ref}, request {request}"
    given, own = [], Options()
    applying = [config for config in view.configs if config.applies_to(request)]
    for source in ("FromClass", "FromClaim"):
        entries = [config for config in applying if config.source == source]
        given += [config for config in entries if _version(where, config) == CPUSET_VERSION]
        options = [_options(where, config) for config in entries if config not in given]
        own = _agreed(where, options).over(own)
    return Said(own, own.over(defaults), _cpuset(where, given), tuple(_ignored(where, given)))


def problem_of(error: ValidationError) -> str:
    """What is wrong with options, which the message names as users write them."""
    bad = BadInputError.from_pydantic(error, known=KEYS.values())
    key = bad.place.partition(".")[0]
    named = BadInputError(in_users_words(bad.reason), place=key if key.isprintable() else repr(key))
    return str(named)[:LONGEST_MESSAGE]


def _version(where: str, config: ConfigEntry) -> str:
    """Its apiVersion, if it is one that we know."""
    if not isinstance(config.parameters, dict):
        raise _bad(where, "the config's parameters are no object")
    version = config.parameters.get("apiVersion")
    if version is None:
        raise _bad(where, f"apiVersion is missing; write apiVersion: {API_VERSION} and kind: {KIND}")
    if version not in (API_VERSION, CPUSET_VERSION):
        raise _bad(where, f"apiVersion: {str(version)[:40]!r} is neither {API_VERSION} nor {CPUSET_VERSION}")
    return str(version)


def _options(where: str, config: ConfigEntry) -> Options:
    parameters = {key: value for key, value in config.parameters.items() if key not in ("apiVersion", "kind")}
    kind = config.parameters.get("kind")
    if kind != KIND:
        raise _bad(where, f"kind: {str(kind)[:40]!r} is not {KIND}")
    try:
        return Options.model_validate(parameters)
    except ValidationError as error:
        raise _bad(where, problem_of(error)) from None


def _agreed(where: str, entries: Iterable[Options]) -> Options:
    """The options of one source, where no two entries may say different things of one key."""
    agreed: dict[str, Any] = {}
    for options in entries:
        for field, value in options.model_dump(exclude_none=True).items():
            if agreed.setdefault(field, value) != value:
                raise _bad(where, f"{KEYS[field]}: two configs of one source say different things")
    return Options.model_construct(**agreed)


def _cpuset(where: str, given: list[ConfigEntry]) -> frozenset[int] | None:
    if not given:
        return None
    if any(config.source == "FromClass" for config in given):
        raise _bad(where, "cpuConfig.cpuset: CPUs are named in claims only, not in a DeviceClass")
    if len(given) > 1:
        raise _bad(where, "cpuConfig.cpuset: more than one config gives this request CPUs")
    config = given[0].parameters.get("cpuConfig")
    text = config.get("cpuset") if isinstance(config, dict) else None
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST:
        raise _bad(where, "cpuConfig.cpuset: is no CPU list such as 2-5")
    try:
        return parse_cpuset(text)
    except ValueError as error:
        raise _bad(where, f"cpuConfig.cpuset: {error}") from None


def _ignored(where: str, given: list[ConfigEntry]) -> Iterator[str]:
    """Keys of the older config that mean nothing: they only warn, for they work today."""
    for config in given:
        inner = config.parameters.get("cpuConfig")
        unknown = [key for key in config.parameters if key not in _CPUSET_KEYS]
        unknown += [f"cpuConfig.{key}" for key in inner if key != "cpuset"] if isinstance(inner, dict) else []
        yield from (f"{where}: {key[:80]!r}: unknown key, ignored" for key in unknown[:MOST_WARNINGS])


def _bad(where: str, what: str) -> RefusedError:
    return RefusedError("BadConfig", f"{where}: {what}")
