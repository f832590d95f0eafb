"""Measures channels between pairs of processes on two nodes: latency, message rate, bandwidth.

figures.py [PAIRS...]: how many pairs send small messages at once. lab.py runs it; to compare agents, alternate them.
"""

import contextlib
import os
import pathlib
import sys
import time

import dragon
import multiprocessing as mp
from dragon.channels import Channel
from dragon.infrastructure.policy import Policy
from dragon.native.machine import Node, System

SIZES = [8, 4 << 10, 1 << 20]
# The minimum duration of a measurement, in seconds.
AT_LEAST = 1
# Ends the measurements.
END = b"end"


class Peer:
    """Sends to a channel of the other process, and receives from its own."""

    def __init__(self, to_other, from_other):
        self.own = Channel.make_process_local()
        to_other.send(self.own.serialize())
        self.other = Channel.attach(from_other.recv())
        assert not self.other.is_local
        self.put, self.take = self.other.sendh(), self.own.recvh()
        self.put.open()
        self.take.open()
        self.send, self.receive = self.put.send_bytes, self.take.recv_bytes


def follow(*links):
    """Serves the measuring peer."""
    peer = Peer(*links)
    while (command := peer.receive()) != END:
        count = int.from_bytes(command[1:], "little")
        if command[:1] == b"e":
            for _ in range(count):
                peer.send(peer.receive())
        else:
            for _ in range(count):
                peer.receive()
            peer.send(b"all")


def timed(peer, kind, data, count):
    peer.send(kind + count.to_bytes(4, "little"))
    begin = time.perf_counter()
    if kind == b"e":
        for _ in range(count):
            peer.send(data)
            peer.receive()
    else:
        for _ in range(count):
            peer.send(data)
        peer.receive()
    return time.perf_counter() - begin


def long_enough(peer, kind, data):
    """Measures for at least `AT_LEAST` seconds. Returns the seconds per message."""
    count = 4
    while (seconds := timed(peer, kind, data, count)) < AT_LEAST:
        count = count * 2 if seconds < AT_LEAST / 4 else int(count * 1.2 * AT_LEAST / seconds) + 1
    return seconds / count


def lead(start, results, sizes, *links):
    peer = Peer(*links)
    for size in sizes:
        data = bytes(size)
        timed(peer, b"e", data, 4)
        start.wait()
        figures = {"size": size, "rate": 1 / long_enough(peer, b"s", data)}
        if len(sizes) > 1:
            figures["latency"] = long_enough(peer, b"e", data) / 2
        results.put(figures)
    peer.send(END)


@contextlib.contextmanager
def quiet():
    """Stops those processes of Dragon that are not measured; see lab.py."""
    file = pathlib.Path(os.environ["HOME"], "quiet")
    file.touch()
    try:
        yield
    finally:
        file.unlink()


def run(hosts, pairs, sizes):
    start, results, processes = mp.Barrier(pairs), mp.Queue(), []
    for _ in range(pairs):
        ab, ba = mp.Pipe(duplex=False), mp.Pipe(duplex=False)
        for host, function, arguments in (
            (hosts[0], lead, (start, results, sizes, ab[1], ba[0])),
            (hosts[1], follow, (ba[1], ab[0])),
        ):
            with Policy(placement=Policy.Placement.HOST_NAME, host_name=host):
                process = mp.Process(target=function, args=arguments)
                process.start()
                processes.append(process)
    with quiet():
        of_sizes = [[results.get() for _ in range(pairs)] for _ in sizes]
    for figures in of_sizes:
        rate, size = sum(figure["rate"] for figure in figures), figures[0]["size"]
        latency = f"{figures[0]['latency'] * 1e6:9.1f} us" if "latency" in figures[0] else ""
        print(f"figure: {pairs:3} pairs {size:8} B {rate:10.0f}/s {rate * size / 1e6:9.2f} MB/s {latency}", flush=True)
    for process in processes:
        process.join()


def main():
    mp.set_start_method("dragon")
    hosts = sorted(Node(node).hostname for node in System().nodes)
    run(hosts, 1, SIZES)
    for pairs in map(int, sys.argv[1:]):
        run(hosts, pairs, SIZES[:1])


if __name__ == "__main__":
    main()
