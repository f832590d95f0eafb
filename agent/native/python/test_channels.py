"""Tests channels of two nodes. CONDUIT_AGENT names the agent of this process, the argument the other one."""

import multiprocessing
import os
import pickle
import sys
import threading

import conduit_channels as channels

LONG = 60


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def echo(requests, replies, agent):
    """A process on the other node."""
    os.environ["CONDUIT_AGENT"] = agent
    while True:
        message, hints = requests.receive_with_hints(LONG)
        replies.send(message, hints=hints, timeout=LONG)
        if not message:
            return


def main(other):
    requests, replies = channels.create(capacity=3), channels.create()
    assert channels.attach(str(requests)) == requests == pickle.loads(pickle.dumps(requests))
    raises(channels.Empty, lambda: replies.receive(0))
    raises(channels.Timeout, lambda: replies.receive(0.01))
    raises(TimeoutError, lambda: replies.poll(channels.IN, 0.01))
    assert requests.poll(channels.OUT) == 3 and requests.poll(channels.CAPACITY) == 3

    context = multiprocessing.get_context("fork")
    process = context.Process(target=echo, args=(requests, replies, other))
    process.start()
    modes = [channels.NONE, channels.IMMEDIATELY, channels.BUFFERED, channels.DEPOSITED, channels.RECEIVED]
    for number, length in enumerate([1, 700, 1025, 100_000, 3_000_000]):
        message = bytes(at % 251 for at in range(length))
        requests.send(message, modes[number], LONG, hints=number)
        assert replies.receive_with_hints(LONG) == (message, number)
    requests.send(memoryview(b""), timeout=LONG)
    assert replies.receive(LONG) == b""
    process.join(LONG)
    assert process.exitcode == 0

    # Threads share the process's client.
    threads = [threading.Thread(target=lambda: replies.receive(LONG)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in threads:
        replies.send(b"x", channels.RECEIVED, LONG)
    for thread in threads:
        thread.join(LONG)

    for _ in range(3):
        requests.send(b"x")
    raises(channels.Full, lambda: requests.send(b"x", timeout=0))
    assert raises(channels.ChannelError, lambda: requests.send(b"x", channels.BUFFERED, 0)).code == 13
    assert raises(channels.ChannelError, lambda: channels.attach(bytes(32)).receive(0)).code == 13
    raises(ValueError, lambda: channels.attach(b"short"))
    requests.destroy()
    error = raises(channels.Destroyed, lambda: requests.receive(LONG))
    assert pickle.loads(pickle.dumps(error)).code == error.code == 120


main(*sys.argv[1:])
