"""Tests two nodes with two agents each, which steal work from each other, on one host without a launcher.

several.py AGENT NAME [CASE...]: the agent's program and the prefix of the pools' names, whose files are
/dev/shm/*<NAME>*. One node has the host's id, the other that of a front end.
"""

import ctypes
import ipaddress
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from dragon import utils
from dragon.channels import Channel, register_gateways_from_env
from dragon.dtypes import WHEN_IMMEDIATE
from dragon.infrastructure import facts
from dragon.managed_memory import MemoryPool

AGENTS = 2
FRONT_END = 1
PORT = 7577
MESSAGES = 48
LENGTH = 2 << 20
PR_SET_PDEATHSIG = 1
LIMITS = {
    "DRAGON_HSTA_DEBUG": "1",
    "DRAGON_HSTA_MAX_EJECTION_MB": "1",
    "DRAGON_HSTA_MAX_INJECTION_MB": "1",
    "CONDUIT_HSTA_STEAL_MB": "2",
    "CONDUIT_NA_DEAD_TIME": "3000",
}


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def content(number):
    return bytes([number]) * LENGTH


class Node:
    """A pool, gateways in it, and agents."""

    def __init__(self, agent, name, hosts, place):
        self.program, self.hosts, self.place = agent, hosts, place
        if hosts[place] == FRONT_END:
            utils.set_host_id(FRONT_END)
        self.pool = MemoryPool(384 << 20, f"{name}-{place}", os.getpid())
        os.environ["DRAGON_DEFAULT_PD"] = utils.B64.bytes_to_str(self.pool.serialize())
        self.gateways = [Channel(self.pool, kind, capacity=2048) for kind in range(1, 3 * AGENTS + 1)]
        for kind, gateway in enumerate(self.gateways):
            where = utils.B64.bytes_to_str(gateway.serialize())
            os.environ[f"DRAGON_GW{kind + 1}"] = where
            os.environ[f"DRAGON_HSTA_GW{kind % 3 + 1}_TIDX{kind // 3}"] = where
        # All clients use the first agent.
        os.environ["DRAGON_NUM_GW_CHANNELS_PER_NODE"] = "3"
        register_gateways_from_env()
        self.logs = [tempfile.TemporaryFile("w+") for _ in range(AGENTS)]
        self.agents = [self.start(nic) for nic in range(AGENTS)]

    def start(self, nic):
        number = lambda value: value.to_bytes(4, "little")
        address = lambda node: number(int(ipaddress.ip_address(f"127.0.{node + 1}.{nic + 1}")))
        front_end = int(self.hosts[self.place] == FRONT_END)
        told = b"".join(number(value) for value in (len(self.hosts), PORT, 1, front_end, 0, 0, 0, 0))
        for node, host in enumerate(self.hosts):
            told += address(node) + host.to_bytes(8, "little") + number(0)
        environment = {"LD_LIBRARY_PATH": facts.DRAGON_LIB_DIR, "DRAGON_HSTA_NIC_IDX": str(nic)}
        agent = subprocess.Popen(
            [self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.logs[nic],
            env=os.environ | LIMITS | environment,
            preexec_fn=die_with_parent,
        )
        agent.stdin.write(told)
        agent.stdin.flush()
        line = agent.stdout.readline()
        assert line.startswith(b"HSTA_CHILD_READY"), (line, self.log(nic))
        return agent

    def log(self, nic):
        self.logs[nic].seek(0)
        return self.logs[nic].read()

    def kill(self, nic):
        self.agents[nic].kill()
        self.agents[nic].wait()

    def close(self):
        for agent in self.agents:
            agent.terminate()
        codes = [agent.wait(20) for agent in self.agents]
        for channel in self.gateways:
            channel.destroy()
        self.pool.destroy()
        return codes


def sender(agent, name, host):
    """Runs the other node, controlled through standard input."""
    node = Node(agent, name, [FRONT_END, int(host)], 0)
    for line in sys.stdin:
        what, *arguments = line.split()
        if what == "send":
            channel = Channel.attach(utils.B64.str_to_bytes(arguments[0]))
            handle = channel.sendh(return_mode=WHEN_IMMEDIATE)
            handle.open()
            for number in range(MESSAGES):
                handle.send_bytes(content(number), timeout=20)
            handle.close()
        elif what == "kill":
            node.kill(int(arguments[0]))
        elif what == "start":
            node.agents[int(arguments[0])] = node.start(int(arguments[0]))
        print("done", flush=True)
    print(node.close(), flush=True)


class Bench:
    def __init__(self, agent, name):
        host = utils.host_id()
        self.node = Node(agent, name, [FRONT_END, host], 1)
        self.channels = 0
        self.other = subprocess.Popen(
            [sys.executable, __file__, "sender", agent, name, str(host)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )

    def tell(self, *words):
        print(*words, file=self.other.stdin, flush=True)

    def answered(self):
        line = self.other.stdout.readline()
        assert line == "done\n", line

    def transfer(self, meanwhile=lambda: None):
        """Sends messages, and returns what the node's second agent has logged meanwhile."""
        self.channels += 1
        channel = Channel(self.node.pool, 100 + self.channels, capacity=2 * MESSAGES)
        before = len(self.node.log(1))
        self.tell("send", utils.B64.bytes_to_str(channel.serialize()))
        handle = channel.recvh()
        handle.open()
        for number in range(MESSAGES):
            if number == 2:
                meanwhile()
            got = handle.recv_bytes(timeout=60)
            assert got == content(number), f"message {number}: {len(got)} bytes of {got[:1]}"
        handle.close()
        self.answered()
        channel.destroy()
        return self.node.log(1)[before:]

    def close(self):
        self.other.stdin.close()
        last = self.other.stdout.readline()
        assert self.other.wait(60) == 0
        return eval(last), self.node.close()


PART = "returned a part of a message to another agent"


def part_of_a_backlog_is_taken(bench):
    eventually = time.monotonic() + 60
    while PART not in bench.transfer():
        # The agents first have to discover each other.
        assert time.monotonic() < eventually


def a_thief_is_killed(bench):
    bench.transfer(lambda: bench.node.kill(1))
    bench.node.agents[1] = bench.node.start(1)
    part_of_a_backlog_is_taken(bench)


def the_peer_of_a_thief_is_killed(bench):
    bench.transfer(lambda: (bench.tell("kill", 1)))
    bench.answered()
    bench.tell("start", 1)
    bench.answered()
    bench.transfer()


CASES = [part_of_a_backlog_is_taken, a_thief_is_killed, the_peer_of_a_thief_is_killed]


def sockets():
    with open("/proc/net/unix", errors="replace") as all_of_them:
        return [line for line in all_of_them if f"conduit-hsta/" in line and f"/{PORT}/" in line]


def main(agent, name, *chosen):
    failed = 0
    bench = Bench(agent, name)
    try:
        assert len(sockets()) >= AGENTS
        for case in CASES:
            if chosen and case.__name__ not in chosen:
                continue
            begin = time.monotonic()
            try:
                case(bench)
                print(f"ok {case.__name__} {time.monotonic() - begin:.1f} s", flush=True)
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"FAILED {case.__name__}", flush=True)
                break
    finally:
        if failed:
            for nic in range(AGENTS):
                print(bench.node.log(nic)[-3000:], file=sys.stderr)
        codes = bench.close()
    assert codes == ([0] * AGENTS, [0] * AGENTS), codes
    assert not sockets(), sockets()
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "sender":
        sender(*sys.argv[2:])
    else:
        sys.exit(main(*sys.argv[1:]))
