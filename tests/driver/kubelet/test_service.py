import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from driver.conditions import Conditions
from driver.errors import RefusedError
from driver.kubelet import service
from driver.kubelet.folders import Folders
from driver.kubelet.serve import KubeletServer
from driver.kubelet.service import misnamed
from driver.ledger.entry import Entry, Grant
from driver.ports import ClaimRef
from driver.protos import dra_pb2 as dra
from tests.driver.kubelet.kubelet import Device, Kubelet, Prepared

PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"


class Claims:
    """A desk that remembers what it was asked. ``refuse``: by name of a claim; ``meanwhile``: in a thread."""

    def __init__(self) -> None:
        self.prepared: list[ClaimRef] = []
        self.unprepared: list[ClaimRef] = []
        self.refuse: dict[str, Exception] = {}
        self.meanwhile: Callable[[ClaimRef], object] = lambda _: None
        self.threads = ThreadPoolExecutor(64)

    async def prepare(self, ref: ClaimRef) -> Entry:
        await self._look(ref)
        self.prepared.append(ref)
        grants = (
            Grant(request="r/first", pool="node-1", device="cpudevnuma000", share_id="share-1", cpus=2),
            Grant(request="s", pool="node-1", device="cpudevnuma001", cpus=1),
        )
        return Entry(uid=ref.uid, cpuset=frozenset({1, 2, 3}), grants=grants)

    async def unprepare(self, ref: ClaimRef) -> None:
        await self._look(ref)
        self.unprepared.append(ref)

    async def _look(self, ref: ClaimRef) -> None:
        await asyncio.get_running_loop().run_in_executor(self.threads, self.meanwhile, ref)
        if ref.name in self.refuse:
            raise self.refuse[ref.name]


@pytest.fixture
def claims() -> Claims:
    return Claims()


@pytest.fixture
def kubelet(short_path, claims):
    server = KubeletServer(claims, Conditions(), (), "node-1", Folders(short_path))
    server.start()
    with Kubelet(short_path) as kubelet:
        kubelet.register()
        yield kubelet
    server.stop()


def ref(uid: str, name: str = "claim") -> ClaimRef:
    return ClaimRef(uid, "default", name)


@pytest.mark.parametrize(("version", "share"), [("v1", "share-1"), ("v1beta1", None)])
def test_devices_carry_base_requests_cdi_and_where_they_can_shares(kubelet, version, share) -> None:
    cdi = ("dra.k8s.io/cpu=claim-u1",)
    devices = kubelet.prepare(ref("u1"), version=version)["u1"].require()
    assert devices == (
        Device(("r",), "node-1", "cpudevnuma000", cdi, share),
        Device(("s",), "node-1", "cpudevnuma001", cdi, None),
    )


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_each_claim_of_a_call_succeeds_or_fails_for_itself(kubelet, claims, version) -> None:
    claims.refuse = {"full": RefusedError("NotPlaceable", "8 CPUs requested, 4 free"), "odd": ZeroDivisionError()}
    asked = [ref("u1"), ref("u2", "full"), ref("u3", "odd"), ref("u4")]
    replies = kubelet.prepare(*asked, version=version)
    assert {uid: reply.error for uid, reply in replies.items()} == {
        "u1": "",
        "u2": "NotPlaceable: 8 CPUs requested, 4 free",
        "u3": "Defect: see the log of the driver",
        "u4": "",
    }
    errors = kubelet.unprepare(*asked, version=version)
    assert errors == {uid: reply.error for uid, reply in replies.items()}
    assert {each.uid for each in claims.unprepared} == {"u1", "u4"}


def test_a_call_without_claims_is_answered(kubelet) -> None:
    assert kubelet.prepare() == kubelet.unprepare() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        ClaimRef("", "default", "claim"),
        ClaimRef("../../etc", "default", "claim"),
        ClaimRef("u" * 64, "default", "claim"),
        ClaimRef("u\n", "default", "claim"),
        ClaimRef("u", "", "claim"),
        ClaimRef("u", "a/b", "claim"),
        ClaimRef("u", "A", "claim"),
        ClaimRef("u", "a" * 64, "claim"),
        ClaimRef("u", "default", ""),
        ClaimRef("u", "default", "../secrets/x"),
        ClaimRef("u", "default", "a..b"),
        ClaimRef("u", "default", "a?watch=1"),
        ClaimRef("u", "default", ("a" * 60 + ".") * 4 + "a" * 10),
        ClaimRef("u", "default", "x" * 100_000),
        ClaimRef("ü", "default", "claim"),
    ],
)
def test_names_that_no_claim_can_have_are_refused_before_anyone_sees_them(kubelet, claims, wrong) -> None:
    replies = kubelet.prepare(wrong, ref("good"))
    assert replies[wrong.uid].error.startswith("BadClaim: ")
    assert len(replies[wrong.uid].error) < 400
    assert not replies["good"].error
    assert kubelet.unprepare(wrong)[wrong.uid].startswith("BadClaim: ")
    assert [each.uid for each in claims.prepared + claims.unprepared] == ["good"]


@pytest.mark.parametrize("name", ["a", "a-b.c-d", "0.1", "x" * 63, ".".join(["a" * 62] * 4)])
def test_names_that_a_claim_can_have_are_taken(name) -> None:
    assert misnamed(ref("6f6bd0a9-5e5a-4b0c-8f5e-0c5a3f6f3b11", name)) is None


def test_the_claims_of_one_call_are_worked_on_at_the_same_time(kubelet, claims) -> None:
    all_in = threading.Barrier(8)
    claims.meanwhile = lambda _: all_in.wait(60)
    replies = kubelet.prepare(*(ref(f"u{n}") for n in range(8)))
    assert not any(reply.error for reply in replies.values())


def test_64_calls_at_once_are_all_answered(kubelet, claims) -> None:
    many, all_in = threading.Semaphore(0), threading.Event()

    def meanwhile(_: ClaimRef) -> None:
        many.release()
        assert all_in.wait(60)

    claims.meanwhile = meanwhile
    replies: list[dict[str, Prepared]] = []
    calls = [
        threading.Thread(target=lambda n=n: replies.append(kubelet.prepare(ref(f"u{n}"), timeout=120)))
        for n in range(64)
    ]
    for call in calls:
        call.start()
    for _ in range(64):
        assert many.acquire(timeout=60)
    all_in.set()
    for call in calls:
        call.join(120)
    assert sorted(uid for reply in replies for uid in reply) == sorted(f"u{n}" for n in range(64))
    assert not any(prepared.error for reply in replies for prepared in reply.values())


def test_a_kubelet_that_hangs_up_calls_its_claims_off(kubelet, claims) -> None:
    called_off = threading.Event()

    async def wait(_: ClaimRef) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            called_off.set()
            raise

    claims._look = wait
    with pytest.raises(grpc.RpcError):
        kubelet.prepare(ref("late"), timeout=0.5)
    assert called_off.wait(60)
    assert claims.prepared == []


def test_more_calls_than_a_kubelet_makes_are_refused_and_those_under_way_are_answered(
    kubelet, claims, monkeypatch
) -> None:
    monkeypatch.setattr(service, "MOST_CALLS", 2)
    inside, go_on, replies = threading.Semaphore(0), threading.Event(), []
    claims.meanwhile = lambda _: (inside.release(), go_on.wait(60))
    calls = [threading.Thread(target=lambda n=n: replies.append(kubelet.prepare(ref(f"u{n}")))) for n in range(2)]
    for each in calls:
        each.start()
        assert inside.acquire(timeout=60)
    with pytest.raises(grpc.RpcError) as failed:
        kubelet.unprepare(ref("u2"))
    assert failed.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    go_on.set()
    for each in calls:
        each.join(60)
    assert len(replies) == 2
    assert kubelet.unprepare(ref("u2")) == {"u2": ""}


def call(kubelet: Kubelet, method: str, message: bytes):
    channel = grpc.insecure_channel(f"unix:{kubelet.endpoint}")
    with channel:
        return channel.unary_unary(method)(message, timeout=60)


@pytest.mark.parametrize(
    ("method", "message", "code"),
    [
        (PREPARE, b"\xff\xff\xff\xff", grpc.StatusCode.UNKNOWN),
        (PREPARE, b"\x0a\xff\x01\x0a", grpc.StatusCode.UNKNOWN),
        (PREPARE, b"\x0a\x04\x12\x02\xff\xfe", grpc.StatusCode.UNKNOWN),
        (PREPARE, b"\x0a" + b"\xff" * 2**21, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (PREPARE.replace("v1", "v2"), b"", grpc.StatusCode.UNIMPLEMENTED),
        (PREPARE.replace("Prepare", "Destroy"), b"", grpc.StatusCode.UNIMPLEMENTED),
        (
            PREPARE,
            dra.NodePrepareResourcesRequest(
                claims=[dra.Claim(uid=f"u{n}") for n in range(2000)]
            ).SerializeToString(),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
    ],
)
def test_what_is_no_call_fails_and_the_next_call_is_served(kubelet, claims, method, message, code) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        call(kubelet, method, message)
    assert failed.value.code() == code
    assert claims.prepared == []
    assert not kubelet.prepare(ref("u1"))["u1"].error


def test_fields_that_we_do_not_know_are_skipped(kubelet) -> None:
    message = dra.NodePrepareResourcesRequest(claims=[dra.Claim(uid="u1", namespace="n", name="c")])
    reply = call(kubelet, PREPARE, message.SerializeToString() + b"\xfa\x3e\x03abc")
    assert set(dra.NodePrepareResourcesResponse.FromString(reply).claims) == {"u1"}
