import gzip
import json
import queue
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from driver.cluster import api as api_module
from driver.cluster import client, exchanges, listing, transport
from driver.cluster.api import Api, InvalidError
from driver.devices.slices import NodeRef
from driver.errors import RefusedError
from models import BadInputError
from tests.driver.claims.documents import claim, result
from tests.driver.cluster.api_server import SLICES, ApiServer
from tests.driver.cluster.machine import make_of
from tests.driver.cluster.waiting import until

CLAIM = claim(result("r", "cpudevmachine", "4"))
FORBIDDEN = json.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not you"}).encode()


def test_a_claim_is_read_by_name_and_none_is_no_error(server: ApiServer, api: Api) -> None:
    server.put_claim(CLAIM)
    found = api.get("default", "cpus")
    assert found is not None
    assert found["status"] == CLAIM["status"]
    assert api.get("default", "other") is None


@pytest.mark.parametrize("name", ["", "..", "a/status", "a?b=c", "a\n", "A", "%2e", "x" * 300, "ä"])
def test_what_is_no_name_never_becomes_a_path(server: ApiServer, api: Api, name: str) -> None:
    assert api.get("default", name) is None
    assert api.get(name, "cpus") is None
    assert server.requests == []


@pytest.mark.parametrize(
    "fault",
    [
        (500, b"{}"),
        (200, b"no json"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"metadata": 7}'),
        (200, b'{"metadata": '),
        (200, b"\xff\xfe"),
        (200, b""),
        (204, b""),
        (302, b""),
        (404, b"404 page not found"),
        (404, b"{}"),
        (403, FORBIDDEN),
        (200, b"[" * 200_000),
        (200, b'{"a":' * 200_000),
        (200, b'{"metadata": {}}', 100),
        (200, b'{"metadata": {}, "a": "' + b"x" * transport.LARGEST + b'"}'),
        (200, gzip.compress(b'{"metadata": {}}', mtime=0), 0, 0.0, (("Content-Encoding", "gzip"),)),
    ],
    ids=lambda fault: f"{fault[0]}-{fault[1][:8]!r}-{len(fault[1])}",
)
def test_a_server_that_answers_nonsense_is_away(server: ApiServer, api: Api, fault: tuple[int, bytes]) -> None:
    server.fault = lambda method, path: fault
    for ask in (
        lambda: api.get("default", "cpus"),
        lambda: api.node_uid("node-1"),
        lambda: api.create_slice({"metadata": {"generateName": "a"}}),
    ):
        with pytest.raises(RefusedError) as refused:
            ask()
        assert refused.value.reason == "ApiAway"
        assert len(refused.value.message) < 500


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"items": []}', b'{"items": [7], "metadata": {"resourceVersion": "1"}}']
)
def test_a_list_that_is_none_is_away(server: ApiServer, api: Api, body: bytes) -> None:
    server.fault = lambda method, path: (200, body)
    with pytest.raises(RefusedError, match="listing slices"):
        api.slices("node-1", dict)


def test_an_answer_that_trickles_in_is_given_up(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "SLOWEST", 0.5)
    server.fault = lambda method, path: (200, b" " * 10_000, 0, 0.01)
    with pytest.raises(RefusedError, match="not complete"):
        api.get("default", "cpus")


def test_whoever_has_little_patience_gives_up_early(server: ApiServer, api: Api) -> None:
    server.fault = lambda method, path: (200, b" " * 10_000, 0, 0.01)
    with pytest.raises(RefusedError, match="not complete after"):
        api.get("default", "cpus", patience=0.3)


@pytest.mark.parametrize(
    "raw",
    [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 50_000, b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000],
    ids=["long", "1xx"],
)
def test_a_head_that_trickles_in_is_given_up(server: ApiServer, api: Api, raw: bytes) -> None:
    """Each of its bytes comes soon after the last one."""
    server.fault = lambda method, path: (200, b"", 0, 0.01, (), raw)
    with pytest.raises(RefusedError, match="not complete after"):
        api.get("default", "cpus", patience=0.3)


def test_a_server_that_is_silent_is_given_up(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT", 0.2)
    impatient = Api.connect(str(server.kubeconfig(tmp_path / "kubeconfig")))
    server.delay = 3.0
    with pytest.raises(RefusedError, match="timed out"):
        impatient.get("default", "cpus")


def test_a_server_that_is_away_is_said_to_be_and_asked_again_later(server: ApiServer, api: Api) -> None:
    server.put_claim(CLAIM)
    assert api.get("default", "cpus") is not None
    server.away()
    with pytest.raises(RefusedError, match="the API server does not do it"):
        api.get("default", "cpus")
    server.back()
    assert api.get("default", "cpus") is not None


def test_an_answer_that_tells_nothing_is_named_by_its_status(server: ApiServer, api: Api) -> None:
    for body in (b"", b"<html>", b"[]"):
        server.fault = lambda method, path, body=body: (503, body)  # type: ignore[misc]
        with pytest.raises(RefusedError, match="503 Service Unavailable") as refused:
            api.get("default", "cpus")
        assert refused.value.message.isprintable()


def claims(server: ApiServer, number: int, **fields: object) -> list[str]:
    """Uids of so many new claims, each in a namespace of its own."""
    names = [f"c{number}" for number in range(number)]
    return [
        server.put_claim({**CLAIM, "metadata": {"name": name, "namespace": f"of-{name}", **fields}})["metadata"][
            "uid"
        ]
        for name in names
    ]


def listed(api: Api, uids: list[str]) -> list[str]:
    """Uids that a look through all claims shows of these."""
    seen: list[str] = []
    api.claims(set(uids), lambda document: seen.append(document["metadata"]["uid"]))
    return seen


def test_all_claims_are_looked_through_page_by_page_and_those_asked_for_are_shown(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE", 3)
    uids = claims(server, 7)
    assert listed(api, [uids[0], uids[6], "another"]) == [uids[0], uids[6]]
    assert len(server.requests) == 3
    (document,) = [each for each in server.find("resourceclaims")[0] if each["metadata"]["uid"] == uids[6]]
    shown: list[dict[str, object]] = []
    api.claims({uids[6]}, shown.append)
    assert shown[0]["metadata"] == {"name": "c6", "namespace": "of-c6", "uid": uids[6]}
    assert shown[0]["status"] == document["status"]


def test_a_list_that_breaks_off_between_pages_is_no_list(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE", 3)
    uids = claims(server, 4)
    server.fault = lambda method, path: (500, b"{}") if "continue" in path else None
    with pytest.raises(RefusedError, match="listing claims"):
        listed(api, uids)


def page(items: list[object], token: str) -> tuple[int, bytes]:
    return 200, json.dumps({"metadata": {"resourceVersion": "1", "continue": token}, "items": items}).encode()


@pytest.mark.parametrize("kind", ["claims", "slices"])
@pytest.mark.parametrize(
    ("token", "requests"),
    [
        (lambda _: "again", 2),
        (lambda number: "abc"[number % 3], 4),
        (str, 20),
        (lambda _: "x" * (listing.LARGEST_TOKEN + 1), 1),
    ],
    ids=["the-same", "in-circles", "ever-new", "long"],
)
def test_a_list_without_end_is_no_list(
    server: ApiServer,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    token: Callable[[int], str],
    requests: int,
) -> None:
    monkeypatch.setattr(listing, "MOST_PAGES", 20)
    server.fault = lambda method, path: page([], token(len(server.requests)))
    with pytest.raises(RefusedError, match=f"listing {kind}: .* the list (has no end|goes in circles)"):
        listed(api, ["u"]) if kind == "claims" else api.slices("node-1", dict)
    assert len(server.requests) == requests


def test_a_page_that_is_too_long_is_asked_for_again_with_fewer_objects(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = claims(server, 5, annotations={"note": "x" * 50_000})
    for largest in (120_000, 60_000):
        monkeypatch.setattr(transport, "LARGEST", largest)
        assert listed(api, uids) == uids
    monkeypatch.setattr(transport, "LARGEST", 40_000)
    with pytest.raises(RefusedError, match="longer than 39 KiB"):
        listed(api, uids)


def test_more_slices_than_anybody_could_want_are_no_list(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "MOST_SLICES", 2)
    (document,) = make_of()(NodeRef("node-1", "u"), 1)
    for number in range(2):
        server.put(SLICES, {**document, "metadata": {"name": f"s{number}"}})
    assert len(api.slices("node-1", dict)[0]) == 2
    server.put(SLICES, {**document, "metadata": {"name": "another"}})
    with pytest.raises(RefusedError, match="more than 2 slices of ours"):
        api.slices("node-1", dict)


def test_a_node_without_a_uid_is_no_answer(server: ApiServer, api: Api) -> None:
    server.fault = lambda method, path: (200, b'{"metadata": {"name": "node-1"}}')
    with pytest.raises(RefusedError, match="has no uid"):
        api.node_uid("node-1")


def test_an_object_has_two_mebibytes_at_most_and_is_not_read_further(server: ApiServer, api: Api) -> None:
    server.put_claim(CLAIM)
    for size, is_there in ((1 << 20, True), (transport.LARGEST, False), (64 << 20, False)):
        document = json.dumps({**CLAIM, "managedFields": "x" * size}).encode()
        server.fault = lambda method, path, document=document: (200, document)  # type: ignore[misc]
        if is_there:
            assert api.get("default", "cpus")
        else:
            with pytest.raises(RefusedError, match="longer than 2048 KiB"):
                api.get("default", "cpus")


def test_what_is_not_needed_of_an_object_is_not_kept(server: ApiServer, api: Api) -> None:
    junk = {"managedFields": [{}] * 100_000, "annotations": {"a": "b"}}
    status = {**CLAIM["status"], "devices": [{"driver": "gpu.example", "data": {"a": "b"}}]}
    server.put_claim({"metadata": {**CLAIM["metadata"], **junk}, "status": status, "spec": {"devices": {}}})
    metadata = {key: CLAIM["metadata"][key] for key in ("name", "namespace", "uid")}
    assert api.get("default", "cpus") == {"metadata": metadata, "status": CLAIM["status"]}


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" * 200_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"1;" + b"x" * 8000 + b"\r\na\r\n") * 400,
    ],
    ids=["interim-answers", "chunk-extensions"],
)
def test_what_comes_beside_the_body_has_a_bound_too(server: ApiServer, api: Api, raw: bytes) -> None:
    server.fault = lambda method, path: (200, b"", 0, 0.0, (), raw)
    with pytest.raises(RefusedError, match="too long"):
        api.get("default", "cpus")


def test_who_waits_for_the_server_is_woken_when_the_driver_ends(server: ApiServer, api: Api) -> None:
    """Also one who reads an answer that drips, and one for whom there is no thread left."""
    ends: queue.Queue[str] = queue.Queue()
    server.fault = lambda method, path: (200, b" " * 100_000, 0, 0.01)

    def ask() -> None:
        try:
            api.get("default", "cpus", patience=60.0)
        except RefusedError as error:
            ends.put(error.reason)

    for _ in range(exchanges.THREADS + 2):
        threading.Thread(target=ask, daemon=True).start()
    until(lambda: len(server.requests) == exchanges.THREADS)
    api.close()
    assert [ends.get(timeout=30) for _ in range(exchanges.THREADS + 2)] == ["ApiAway"] * (exchanges.THREADS + 2)
    with pytest.raises(RefusedError, match="the driver is ending"):
        api.node_uid("node-1")
    until(lambda: not server.connections())


def test_a_slice_that_is_not_valid_is_told_apart_from_a_server_that_is_away(server: ApiServer, api: Api) -> None:
    (document,) = make_of()(NodeRef("node-1", "u"), 1)
    document["spec"]["pools"] = {}
    with pytest.raises(InvalidError, match="pools"):
        api.create_slice(document)
    assert server.slices() == []


def test_a_watch_tells_of_our_slices_only_and_from_where_the_list_ended(server: ApiServer, api: Api) -> None:
    _, version = api.slices("node-1", dict)
    (ours,) = make_of()(NodeRef("node-1", "u"), 1)
    theirs = {**ours, "spec": {**ours["spec"], "nodeName": "node-2"}}
    server.put(SLICES, theirs)
    kept = server.put(SLICES, ours)
    server.delete(SLICES, "", kept["metadata"]["name"])
    watch = api.watch_slices("node-1", version)
    seen = [next(watch) for _ in range(2)]
    assert [(operation, name) for operation, name in seen] == [
        ("ADDED", kept["metadata"]["name"]),
        ("DELETED", kept["metadata"]["name"]),
    ]


def test_a_watch_ends_when_the_server_ends_it(
    server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "WATCH", 1)
    assert list(api.watch_slices("node-1", api.slices("node-1", dict)[1])) == []
    assert sum("watch" in path for _, path in server.requests) == 1


def test_a_watch_from_a_version_that_is_gone_ends(server: ApiServer, api: Api) -> None:
    _, version = api.slices("node-1", dict)
    server.compact()
    assert list(api.watch_slices("node-1", version)) == []


def test_a_watch_whose_event_says_gone_ends(server: ApiServer, api: Api) -> None:
    event = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    server.fault = lambda method, path: (200, json.dumps(event).encode() + b"\n")
    assert list(api.watch_slices("node-1", "1")) == []


@pytest.mark.parametrize(
    "fault",
    [
        (200, b"no json\n"),
        (200, b"[]\n"),
        (200, b'{"type": "ADDED", "object": 7}\n'),
        (200, b'{"type": "ADDED", "object": {}}\n'),
        (200, b"x" * (transport.LARGEST + 1)),
        (403, FORBIDDEN),
        (500, b"{}"),
        (200, b"", 10),
    ],
    ids=lambda fault: f"{fault[0]}-{fault[1][:8]!r}",
)
def test_a_watch_that_tells_nonsense_is_away(server: ApiServer, api: Api, fault: tuple[int, bytes]) -> None:
    server.fault = lambda method, path: fault
    with pytest.raises(RefusedError, match="watching slices"):
        list(api.watch_slices("node-1", "1"))


def test_watches_that_are_refused_do_not_use_up_the_connections(server: ApiServer, api: Api) -> None:
    server.put_claim(CLAIM)
    server.fault = lambda method, path: (403, FORBIDDEN) if "watch" in path else None
    for _ in range(110):  # httpx's pool holds 100.
        with pytest.raises(RefusedError):
            list(api.watch_slices("node-1", "1"))
    assert api.get("default", "cpus") is not None


def test_watches_that_are_left_do_not_use_up_the_connections(server: ApiServer, api: Api) -> None:
    server.put_claim(CLAIM)
    server.put(SLICES, make_of()(NodeRef("node-1", "u"), 1)[0])
    for _ in range(110):
        next(api.watch_slices("node-1", "0"))
    assert api.get("default", "cpus") is not None


def woken(api: Api) -> list[RefusedError]:
    """Watch in a thread and wake it; what its watch ended with."""
    ends: list[RefusedError] = []
    _, version = api.slices("node-1", dict)

    def watch() -> None:
        try:
            list(api.watch_slices("node-1", version))
        except RefusedError as error:
            ends.append(error)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    until(lambda: (api.end_watches(), thread.join(0.05), not thread.is_alive())[-1])
    return ends


def test_whoever_watches_can_be_woken(api: Api) -> None:
    assert len(woken(api)) == 1
    assert api.node_uid("node-1"), "nothing else is disturbed"


OPENSSL = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test"


def certificate(folder: Path, name: str) -> Path:
    """A new one for the loopback address, its key beside it."""
    file = folder / f"{name}.crt"
    command = [*OPENSSL.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", file.with_suffix(".key"), "-out", file], check=True, capture_output=True)
    return file


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_only_a_server_with_the_right_certificate_is_trusted(tmp_path: Path) -> None:
    right, wrong = certificate(tmp_path, "right"), certificate(tmp_path, "wrong")
    server = ApiServer()
    server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.tls.load_cert_chain(right, right.with_suffix(".key"))
    with server:
        trusting = Api.connect(str(server.kubeconfig(tmp_path / "a", right)))
        assert trusting.node_uid("node-1")
        for name, ca in (("b", wrong), ("c", None)):
            doubting = Api.connect(str(server.kubeconfig(tmp_path / name, ca)))
            with pytest.raises(RefusedError, match="CERTIFICATE_VERIFY_FAILED"):
                doubting.node_uid("node-1")
        assert len(woken(trusting)) == 1


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "a: [",
        "[]",
        "clusters: 7",
        "\x00",
        "[" * 100_000,
        "#" * (65 << 20),
        "clusters: []\ncontexts: []\nusers: []\n",
        "clusters: [{name: c, cluster: {server: 'https://x'}}]\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: []\n",
        "clusters: [{name: c, cluster: {server: 'https://[::1'}}]\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c}}]\nusers: []\n",
        "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: /nope}}]\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n",
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_a_clear_error(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInputError, match="no access to the API server") as bad:
        Api.connect(str(file))
    assert bad.value.file == str(file)
    assert "\n" not in str(bad.value)


def test_without_a_service_account_the_error_says_so() -> None:
    with pytest.raises(BadInputError, match="service account"):
        Api.connect()
