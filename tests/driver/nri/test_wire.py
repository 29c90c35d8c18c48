"""The mux and ttrpc against a peer that does as it likes."""

import gc
import socket
import struct
import threading
import time

import pytest

from driver.nri import mux, ttrpc
from driver.nri.ttrpc import CallError, Connection
from driver.protos import nri_pb2 as nri
from driver.protos.ttrpc_pb2 import Request, Response
from tests.driver.nri.wire import PluginEnd, PluginError

REGISTER = nri.RegisterPluginRequest(plugin_name="x", plugin_idx="10")


def frame(connection, data):
    return struct.pack(">II", connection, len(data)) + data


def message(stream, kind, payload, length=None):
    return struct.pack(">IIBB", len(payload) if length is None else length, stream, kind, 0) + payload


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(mux, "PATIENCE", 0.2)
    monkeypatch.setattr(ttrpc, "PATIENCE", 0.2)


def echo(method, payload):
    return nri.ConfigureRequest(config=f"{method} {len(payload)}")


def test_calls_go_both_ways_at_once_with_messages_of_any_size(pair):
    ours, theirs = pair
    end = PluginEnd(theirs, lambda method, payload: nri.ConfigureRequest(config=payload.decode("latin1")))
    connection = Connection(ours, echo)
    failures = []

    def call(size):
        try:
            request = nri.ConfigureRequest(config="x" * size)
            assert (
                connection.call("Any", request, 30)
                == nri.ConfigureRequest(config=request.SerializeToString().decode("latin1")).SerializeToString()
            )
            reply = nri.ConfigureRequest.FromString(end.call("Configure", request, 30))
            assert reply.config == f"Configure {request.ByteSize()}"
        except Exception as error:
            failures.append(error)

    sizes = [0, 1, 4000, 4080, 4096, 4097, 5000, 8192, 100_000, 2_000_000]
    threads = [threading.Thread(target=call, args=(size,)) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection.close()
    assert failures == []
    assert end.faults == []


def test_a_refusal_carries_its_message_and_a_defect_is_one_too(pair):
    ours, theirs = pair

    def answer(method, payload):
        if method == "Refuse":
            raise CallError(9, "not now")
        raise KeyError("x")

    end = PluginEnd(theirs, echo)
    connection = Connection(ours, answer)
    with pytest.raises(PluginError, match="not now"):
        end.call("Refuse", nri.Empty(), 10)
    with pytest.raises(PluginError, match="defect"):
        end.call("Break", nri.Empty(), 10)
    assert not connection.ended.is_set()
    connection.close()


def test_an_error_of_the_runtime_reaches_the_caller(pair):
    ours, theirs = pair

    def serve(method, payload):
        raise ValueError("unknown plugin")

    PluginEnd(theirs, serve)
    connection = Connection(ours, echo)
    with pytest.raises(CallError, match="unknown plugin"):
        connection.call("RegisterPlugin", REGISTER, 10)
    connection.close()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">II", 1, 0xFFFFFFFF), "frame of 4294967295 bytes"),
        (frame(1, message(1, 1, b"", length=(4 << 20) + 1)), "message of 4194305 bytes"),
        (frame(1, message(1, 2, b"")), "type 2 on connection 1"),
        (frame(2, message(1, 1, b"")), "type 1 on connection 2"),
        (frame(1, message(1, 3, b"")), "type 3"),
        (frame(1, message(1, 1, b"\xff\xff\xff")), "protocol"),
        (frame(2, message(1, 2, b"\x0a\x7f")), "protocol"),
        (struct.pack(">II", 1, 100) + b"abc", "not finished in time"),
        (b"\0\0", "not finished in time"),
        (frame(1, message(1, 1, b"abc", length=100)), "not finished in time"),
    ],
)
def test_what_is_no_protocol_ends_the_connection_with_a_reason(pair, quick, data, why):
    ours, theirs = pair
    connection = Connection(ours, echo)
    theirs.sendall(data)
    assert connection.ended.wait(20)
    assert why in connection.why
    with pytest.raises(OSError, match="protocol"):
        connection.call("RegisterPlugin", REGISTER, 1)


def test_a_frame_cut_off_by_the_end_is_said_so_and_waiting_calls_end(pair):
    ours, theirs = pair
    connection = Connection(ours, echo)
    reply = connection.begin("RegisterPlugin", REGISTER)
    theirs.sendall(struct.pack(">II", 1, 100) + b"abc")
    theirs.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError, match="ended within a frame"):
        reply.result(20)


def test_a_message_in_drops_is_given_up(pair, quick):
    ours, theirs = pair
    connection = Connection(ours, echo)
    data = frame(1, message(1, 1, b"x" * 50))
    end = time.monotonic() + 30
    while not connection.ended.is_set() and time.monotonic() < end:
        try:
            theirs.sendall(data[:1])
        except OSError:
            break
        data = data[1:] or b"x"
        time.sleep(0.05)
    assert connection.ended.wait(20)
    assert "not finished in time" in connection.why


def test_silence_between_messages_is_no_fault(pair, quick):
    ours, theirs = pair
    end = PluginEnd(theirs, echo)
    connection = Connection(ours, echo)
    time.sleep(0.6)
    assert end.call("Configure", nri.Empty(), 10)
    connection.close()


def test_a_peer_that_does_not_read_ends_the_connection(pair, quick):
    ours, theirs = pair
    connection = Connection(ours, lambda method, payload: nri.ConfigureRequest(config="x" * 4_000_000))
    request = Request(service="s", method="m").SerializeToString()
    theirs.sendall(frame(1, message(1, 1, request)))
    assert connection.ended.wait(20)


def test_a_call_that_could_not_be_sent_whole_ends_the_connection(pair, quick):
    ours, _theirs = pair
    connection = Connection(ours, echo)
    with pytest.raises(OSError, match="timed out"):
        connection.call("Any", nri.ConfigureRequest(config="x" * 4_000_000), 10)
    assert connection.ended.wait(20)
    with pytest.raises(OSError, match="ended"):
        connection.call("RegisterPlugin", REGISTER, 1)


def test_calls_that_nobody_waits_for_any_more_are_forgotten(pair):
    ours, theirs = pair
    connection = Connection(ours, echo)
    for _ in range(50):
        with pytest.raises(TimeoutError):
            connection.call("RegisterPlugin", REGISTER, 0.001)
    with pytest.raises(mux.WireError, match="longer than"):
        connection.call("Any", nri.ConfigureRequest(config="x" * 5_000_000), 1)
    gc.collect()
    assert not connection._waiting
    theirs.sendall(frame(2, message(1, 2, Response().SerializeToString())))
    connection.close()


def test_frames_of_other_connections_and_replies_to_nobody_are_dropped(pair):
    ours, theirs = pair
    end = PluginEnd(theirs, echo)
    connection = Connection(ours, echo)
    end.raw(frame(7, b"z" * 100_000) + frame(2, message(9, 2, Response().SerializeToString())))
    assert end.call("Configure", nri.Empty(), 10)
    connection.close()


def test_a_connection_whose_handler_does_not_come_to_an_end_is_not_alive(pair, monkeypatch):
    monkeypatch.setattr(ttrpc, "STUCK", 0.05)
    ours, theirs = pair
    asked, done = threading.Event(), threading.Event()

    def answer(method, payload):
        asked.set()
        assert done.wait(30)
        return nri.Empty()

    connection, end = Connection(ours, answer), PluginEnd(theirs, echo)
    assert connection.alive()
    caller = threading.Thread(target=end.call, args=("Configure", nri.Empty(), 30))
    caller.start()
    assert asked.wait(30)
    while connection.alive():
        time.sleep(0.01)
    done.set()
    caller.join()
    while not connection.alive():
        time.sleep(0.01)
    end.close()
    assert connection.ended.wait(30)
    assert connection.alive(), "that it has ended is known, and another one is made"
