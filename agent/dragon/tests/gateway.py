"""Tests an agent with clients of unmodified Dragon, on one host without a launcher, with channels that pretend to be remote.

gateway.py AGENT NAME [CASE...]: the agent's program and a unique name for pools. `agent/hsta/tests` runs it.
"""

import ctypes
import faulthandler
import glob
import ipaddress
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from dragon import utils
from dragon.channels import (
    Channel,
    ChannelBarrierBroken,
    ChannelBarrierReady,
    ChannelDestroyed,
    ChannelEmpty,
    ChannelError,
    ChannelFlags,
    ChannelFull,
    ChannelRecvTimeout,
    ChannelSendTimeout,
    EventType,
    Message,
    PollResult,
    register_gateways_from_env,
)
from dragon.dtypes import WHEN_BUFFERED, WHEN_DEPOSITED, WHEN_IMMEDIATE, WHEN_RECEIVED
from dragon.infrastructure import facts
from dragon.managed_memory import MemoryPool

AGENT, NAME, *CHOSEN = sys.argv[1:]
REMOTE = ChannelFlags.MASQUERADE_AS_REMOTE
# Descriptors inside the agent's messages are longer than this; shorter payloads travel inline.
INLINE = 328
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
# From return_codes.h.
TIMEOUT, BARRIER_BROKEN, BARRIER_READY = 11, 20, 22
# The maximum number of messages in a gateway.
GATEWAY_CAPACITY = 2048
# The agent's budgets, in MiB.
BUDGET = 8
# How long an agent waits for a client to take its answer, in seconds; defined by libdragon.
SETTLE = 30
# Time limits of a wait and of a case, in seconds.
LIMIT = 120
CASE = 2 * LIMIT


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def startup_bytes():
    """Returns what Dragon's `send_startup_info` writes for a job on this host."""
    number = lambda value: value.to_bytes(4, "little")
    # An address that only this process uses, because other tests may use the same port at the same
    # time.
    address = number(int(ipaddress.ip_address("127.0.0.0")) | os.getpid() & 0xFFFFFF)
    head = b"".join(number(value) for value in (1, 7575, 1, 0, 0, 0, 0, 1))
    return head + address + number(2) + b"lo" + address + utils.host_id().to_bytes(8, "little") + number(0)


class Bench:
    """A pool, gateways in it, and an agent."""

    def __init__(self):
        self.pool = MemoryPool(256 << 20, NAME, os.getpid())
        self.uid = 100
        self.gateways = []
        self.log = tempfile.TemporaryFile()
        os.environ["DRAGON_DEFAULT_PD"] = utils.B64.bytes_to_str(self.pool.serialize())
        os.environ["DRAGON_NUM_GW_CHANNELS_PER_NODE"] = "3"
        os.environ["DRAGON_HSTA_NIC_IDX"] = "0"
        for kind in (1, 2, 3):
            gateway = Channel(self.pool, kind, capacity=GATEWAY_CAPACITY)
            self.gateways.append(gateway)
            where = utils.B64.bytes_to_str(gateway.serialize())
            os.environ[f"DRAGON_GW{kind}"] = where
            os.environ[f"DRAGON_HSTA_GW{kind}_TIDX0"] = where
        register_gateways_from_env()
        self.start()

    def start(self):
        self.agent = subprocess.Popen(
            [AGENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=os.environ | {"LD_LIBRARY_PATH": facts.DRAGON_LIB_DIR},
            preexec_fn=die_with_parent,
        )
        self.agent.stdin.write(startup_bytes())
        self.agent.stdin.flush()
        line = self.agent.stdout.readline()
        assert line.startswith(b"HSTA_CHILD_READY"), self.logged()

    def stop(self):
        self.agent.terminate()
        assert self.agent.wait(LIMIT) == 0

    def logged(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    def channel(self, **kinds):
        self.uid += 1
        return Channel(self.pool, self.uid, flags=REMOTE, **kinds)

    def local(self, channel):
        """Returns the same channel as a local one."""
        return Channel.attach(channel.serialize())

    def client(self, what, **kinds):
        """Starts a process that performs an operation on its own channel, and returns both; here the channel is a local one.
        A fork would not do: libdragon would tell agents the parent's process id."""
        self.uid += 1
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(self.uid), what, repr(kinds)],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        return client, Channel.attach(utils.B64.str_to_bytes(client.stdout.readline().strip()))

    def until_asked(self, request):
        """Makes a request in a separate process, and waits until the agent has it."""
        self.pause()
        child = os.fork()
        if child == 0:
            die_with_parent()
            code = 1
            try:
                code = request()
            finally:
                os._exit(code)
        self.resume(1)
        return child

    def pause(self):
        """Stops the agent while its gateways are empty."""
        self.until_asked_for(0)
        self.agent.send_signal(signal.SIGSTOP)
        eventually(lambda: state(self.agent.pid) == "T")

    def resume(self, requests):
        """Waits for this many requests in the gateways, then lets the agent take them."""
        self.until_asked_for(requests)
        self.agent.send_signal(signal.SIGCONT)
        self.until_asked_for(0)

    def until_asked_for(self, requests):
        eventually(lambda: sum(gateway.num_msgs for gateway in self.gateways) == requests)

    def close(self):
        self.agent.kill()
        self.agent.wait()
        self.pool.destroy()


CLIENT = """
import signal, sys
from dragon.channels import Channel, ChannelFlags, register_gateways_from_env
from dragon.managed_memory import MemoryPool
from dragon.utils import B64
register_gateways_from_env()
uid, what, kinds = sys.argv[1:]
channel = Channel(MemoryPool.attach_default(), int(uid), flags=ChannelFlags.MASQUERADE_AS_REMOTE, **eval(kinds))
put, take = channel.sendh(return_mode=2), channel.recvh()
put.open()
take.open()
print(B64.bytes_to_str(channel.serialize()), flush=True)
try:
    match what.split():
        case ["get"]:
            take.recv_bytes(timeout=None)
        case ["poll"]:
            channel.poll(timeout=None)
        case ["fill", mode, size]:
            put.send_bytes(b"first", timeout=None)
            handle = channel.sendh(return_mode=int(mode))
            handle.open()
            print("full", flush=True)
            handle.send_bytes(bytes(int(size)), timeout=None)
            # Only the agent is responsible for an accepted message.
            print("accepted", flush=True)
            signal.pause()
except Exception as error:
    print(repr(error), flush=True)
"""


def sender(channel, mode=WHEN_DEPOSITED):
    handle = channel.sendh(return_mode=mode)
    handle.open()
    return handle


def receiver(channel):
    handle = channel.recvh()
    handle.open()
    return handle


def raises(kinds, call, *arguments, **named):
    try:
        result = call(*arguments, **named)
    except kinds as error:
        return error
    raise AssertionError(f"{result!r} instead of {kinds}")


def eventually(condition):
    while not condition():
        time.sleep(0.001)


def state(process):
    """Returns the process state as shown by ps."""
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def works(bench):
    """Checks that the agent still works."""
    channel = bench.channel()
    sender(channel).send_bytes(b"works", timeout=LIMIT)
    assert receiver(channel).recv_bytes(timeout=LIMIT) == b"works"
    channel.destroy()


def send_in_all_modes(bench):
    for mode in (WHEN_IMMEDIATE, WHEN_BUFFERED, WHEN_DEPOSITED, WHEN_RECEIVED):
        for size in (1, 100, INLINE, 1000, 5000, 3 << 20):
            channel = bench.channel()
            take = receiver(bench.local(channel))
            data = os.urandom(size)
            sender(channel, mode).send_bytes(data, timeout=LIMIT)
            got = take.recv_bytes(timeout=LIMIT)
            assert got == data, (mode, size)
            channel.destroy()


def get(bench):
    for size in (1, 100, 1000, 5000, 3 << 20):
        channel = bench.channel()
        data = os.urandom(size)
        sender(bench.local(channel)).send_bytes(data, timeout=LIMIT)
        assert receiver(channel).recv_bytes(timeout=LIMIT) == data
        channel.destroy()


def messages_are_placed_where_receivers_want_them(bench):
    data = os.urandom(3000)
    for size in (5000, 0):
        # Memory of its own, or, if that has no bytes, a new allocation of its pool.
        channel = bench.channel()
        put, take = sender(bench.local(channel)), receiver(channel)
        place = bench.pool.alloc(size)
        put.send_bytes(data)
        got = take.recv(Message.create_from_mem(place), timeout=LIMIT)
        assert got.tobytes() == data
        if size:
            assert bytes(place.get_memview()[: len(data)]) == data
        channel.destroy()


def a_place_that_is_too_small(bench):
    channel = bench.channel()
    sender(channel).send_bytes(bytes(3000), timeout=LIMIT)
    small = Message.create_from_mem(bench.pool.alloc(100))
    error = raises(ChannelError, receiver(channel).recv, small, timeout=LIMIT)
    assert "INVALID_ARGUMENT" in str(error), error
    works(bench)


def messages_are_placed_where_senders_want_them(bench):
    with tempfile.TemporaryDirectory() as folder:
        program = compiled("placed", folder)
        for length in (100, 3000, 3 << 20):
            channel = bench.channel()
            name = utils.B64.bytes_to_str(channel.serialize())
            arguments = lambda room: [program, name, str(length), str(room)]
            said = subprocess.run(arguments(length + 50), stdout=subprocess.PIPE, text=True, timeout=LIMIT).stdout
            assert said == "placed\n", said
            # libdragon makes all of that memory the message.
            got = receiver(channel).recv_bytes(timeout=LIMIT)
            assert len(got) == length + 50 and got[:length] == bytes(at % 251 for at in range(length))
            said = subprocess.run(arguments(length - 50), stdout=subprocess.PIPE, text=True, timeout=LIMIT).stdout
            assert said == "send: DRAGON_INVALID_ARGUMENT\n", said
            channel.destroy()
    works(bench)


def marks_of_a_message_travel(bench):
    channel = bench.channel()
    message = Message.create_alloc(bench.pool, 10, clientid=77, hints=88)
    message.bytes_memview()[:] = b"0123456789"
    handle = sender(channel)
    handle.send(message, ownership=handle.copy_on_send, timeout=LIMIT)
    message.destroy()
    got = receiver(channel).recv(timeout=LIMIT)
    assert (got.tobytes(), got.clientid, got.hints) == (b"0123456789", 77, 88)
    got.destroy()


def sends_that_give_their_memory(bench):
    for mode in (WHEN_IMMEDIATE, WHEN_BUFFERED, WHEN_DEPOSITED, WHEN_RECEIVED):
        for size in (100, 5000):
            channel = bench.channel()
            message = Message.create_alloc(bench.pool, size)
            message.bytes_memview()[:] = b"x" * size
            handle = sender(channel, mode)
            handle.send(message, ownership=handle.transfer_ownership_on_send, timeout=LIMIT)
            assert receiver(channel).recv_bytes(timeout=LIMIT) == b"x" * size
            channel.destroy()


def payloads_larger_than_the_budgets(bench):
    data = os.urandom((3 * BUDGET << 20) // 2)
    for mode in (WHEN_BUFFERED, WHEN_DEPOSITED):
        channel = bench.channel()
        sender(channel, mode).send_bytes(data, timeout=LIMIT)
        assert receiver(channel).recv_bytes(timeout=LIMIT) == data
        channel.destroy()


def what_is_not_answered_in_time_is_followed_by_what_is(bench):
    """The second send and the second get time out."""
    channel = bench.channel(capacity=1)
    put, take = sender(channel), receiver(channel)
    put.send_bytes(b"first", timeout=LIMIT)
    raises((ChannelSendTimeout, TimeoutError), put.send_bytes, b"second", timeout=0.05)
    assert take.recv_bytes(timeout=LIMIT) == b"first"
    raises((ChannelRecvTimeout, TimeoutError), take.recv_bytes, timeout=0.05)
    put.send_bytes(b"third", timeout=LIMIT)
    assert take.recv_bytes(timeout=LIMIT) == b"third"


def time_limits(bench):
    channel = bench.channel(capacity=1)
    put, take = sender(channel), receiver(channel)
    for timeout, kinds in ((0, ChannelEmpty), (0.001, ChannelRecvTimeout), (0.3, ChannelRecvTimeout)):
        begin = time.monotonic()
        raises((kinds, TimeoutError), take.recv_bytes, timeout=timeout)
        assert time.monotonic() - begin >= timeout
    put.send_bytes(b"only", timeout=LIMIT)
    for timeout, kinds in ((0, ChannelFull), (0.001, ChannelSendTimeout), (0.3, ChannelSendTimeout)):
        begin = time.monotonic()
        raises((kinds, TimeoutError), put.send_bytes, b"more", timeout=timeout)
        assert time.monotonic() - begin >= timeout
    assert take.recv_bytes(timeout=LIMIT) == b"only"
    raises(ChannelEmpty, take.recv_bytes, timeout=0)


def poll(channel, event, timeout=LIMIT):
    result = PollResult()
    try:
        channel.poll(event_mask=event, timeout=timeout, poll_result=result)
    except ChannelBarrierReady:
        return 0, BARRIER_READY
    except ChannelBarrierBroken:
        return 0, BARRIER_BROKEN
    return result.value, result.rc


def polls(bench):
    channel = bench.channel(capacity=2)
    put = sender(bench.local(channel))
    assert not channel.poll(timeout=0, event_mask=EventType.POLLIN)
    assert not channel.poll(timeout=0.1, event_mask=EventType.POLLFULL)
    for event in (EventType.POLLOUT, EventType.POLLINOUT, EventType.POLLEMPTY):
        assert poll(channel, event)[1] == 0, event
    assert poll(channel, EventType.POLLSIZE) == (0, 0)
    put.send_bytes(b"1")
    assert poll(channel, EventType.POLLSIZE) == (1, 0)
    put.send_bytes(b"2")
    for event in (EventType.POLLIN, EventType.POLLFULL):
        assert poll(channel, event)[1] == 0, event
    assert poll(channel, EventType.POLLOUT, 0)[1] == TIMEOUT
    assert poll(channel, EventType.POLLEMPTY, 0.1)[1] == TIMEOUT
    assert channel.num_msgs == 2
    assert channel.capacity == 2
    assert poll(channel, EventType.POLLBLOCKED_RECEIVERS) == (0, 0)
    assert poll(channel, EventType.POLLRESET)[1] == 0


def a_poll_that_waits(bench):
    channel = bench.channel()
    child = os.fork()
    if child == 0:
        die_with_parent()
        os._exit(0 if channel.poll(timeout=LIMIT, event_mask=EventType.POLLIN) else 1)
    sender(bench.local(channel)).send_bytes(b"here")
    assert os.waitpid(child, 0)[1] == 0


def semaphores(bench):
    channel = bench.channel(semaphore=True, initial_sem_value=1)
    assert poll(channel, EventType.SEMAPHORE_PEEK) == (1, 0)
    assert poll(channel, EventType.SEMAPHORE_P)[1] == 0
    assert poll(channel, EventType.SEMAPHORE_Z)[1] == 0
    assert poll(channel, EventType.SEMAPHORE_P, 0)[1] == TIMEOUT
    assert poll(channel, EventType.SEMAPHORE_P, 0.1)[1] == TIMEOUT
    assert poll(channel, EventType.SEMAPHORE_V)[1] == 0
    assert poll(channel, EventType.SEMAPHORE_PEEK) == (1, 0)


def barriers(bench):
    channel = bench.channel(capacity=2)
    take = receiver(channel)
    assert poll(channel, EventType.POLLBARRIER)[1] == 0
    assert poll(channel, EventType.POLLBARRIER_WAITERS) == (1, 0)
    assert poll(channel, EventType.POLLBARRIER)[1] == BARRIER_READY
    # A waiter beyond the barrier's parties has to wait, and no other client has to wait for it.
    assert poll(channel, EventType.POLLBARRIER, 0.1)[1] == TIMEOUT
    assert poll(channel, EventType.POLLBARRIER_RELEASE, 0)[1] == 0
    # The next phase begins when all have left this one; an early waiter waits for that.
    begin = time.monotonic()
    assert poll(channel, EventType.POLLBARRIER, 0.1)[1] == TIMEOUT
    assert time.monotonic() - begin >= 0.1
    early = os.fork()
    if early == 0:
        die_with_parent()
        os._exit(poll(channel, EventType.POLLBARRIER)[1])
    assert len(take.recv_bytes(timeout=LIMIT)) == len(take.recv_bytes(timeout=LIMIT)) > 0
    assert os.waitpid(early, 0)[1] == 0
    assert poll(channel, EventType.POLLBARRIER_WAITERS) == (1, 0)
    assert poll(channel, EventType.POLLBARRIER_ABORT, 0)[1] == 0
    assert poll(channel, EventType.POLLBARRIER_ISBROKEN)[0] == 1
    assert poll(channel, EventType.POLLBARRIER)[1] == BARRIER_BROKEN


def order_of_one_handle(bench):
    channel = bench.channel(capacity=3)
    count = 300
    child = os.fork()
    if child == 0:
        die_with_parent()
        put = sender(channel, WHEN_BUFFERED)
        for number in range(count):
            put.send_bytes(number.to_bytes(4, "little") * (1 if number % 3 else 200), timeout=LIMIT)
        os._exit(0)
    take = receiver(channel)
    for number in range(count):
        assert int.from_bytes(take.recv_bytes(timeout=LIMIT)[:4], "little") == number
    assert os.waitpid(child, 0)[1] == 0


def kept(bench, channel):
    """Returns whether a message is still there after the agent has tried every request once."""
    poll(bench.channel(), EventType.POLLSIZE)
    return channel.num_msgs > 0


def clients_that_are_killed(bench):
    for what in ("get", "poll") * 3:
        client, channel = bench.client(what)
        # At any point of its request, mostly while the agent has it.
        time.sleep(random.uniform(0, 0.1))
        client.kill()
        client.wait()
        works(bench)
        # The dead client's request takes messages until its death is noticed, and none afterwards.
        put = sender(channel)
        put.send_bytes(b"kept")
        eventually(lambda: kept(bench, channel) or put.send_bytes(b"kept"))


def clients_that_are_killed_while_they_send(bench):
    for mode in (WHEN_IMMEDIATE, WHEN_BUFFERED, WHEN_DEPOSITED, WHEN_RECEIVED):
        for size in (100, 5000, 1 << 20):
            client, channel = bench.client(f"fill {mode.value} {size}", capacity=1)
            assert client.stdout.readline() == "full\n"
            accepted = mode in (WHEN_IMMEDIATE, WHEN_BUFFERED)
            if accepted:
                assert client.stdout.readline() == "accepted\n"
            else:
                time.sleep(random.uniform(0, 0.1))
            client.kill()
            client.wait()
            take = receiver(channel)
            assert take.recv_bytes(timeout=LIMIT) == b"first"
            if accepted:
                assert take.recv_bytes(timeout=LIMIT) == bytes(size)
            works(bench)


def what_is_no_descriptor(bench):
    channel = bench.channel()
    real = channel.serialize()
    channel.destroy()
    # The channel's pool does not exist.
    other = MemoryPool(4 << 20, f"{NAME}x", os.getpid() + 1)
    gone = Channel(other, 5000, flags=REMOTE)
    put, take = sender(gone), receiver(gone)
    files = [f"/dev/shm/D{NAME}x{kind}" for kind in "MD"]
    for file in files:
        os.rename(file, file + "-")
    try:
        raises(Exception, take.recv_bytes, timeout=2)
        raises(Exception, put.send_bytes, b"lost", timeout=2)
        raises(Exception, gone.poll, timeout=2)
    finally:
        for file in files:
            os.rename(file + "-", file)
        other.destroy()


def a_channel_that_is_destroyed_meanwhile(bench):
    for what in ("get", "poll", "send"):
        channel = bench.channel(capacity=1)
        put, take = sender(channel), receiver(channel)
        put.send_bytes(b"the agent knows it now", timeout=LIMIT)
        if what != "send":
            take.recv_bytes(timeout=LIMIT)

        def request():
            try:
                match what:
                    case "get":
                        take.recv_bytes(timeout=None)
                    case "send":
                        put.send_bytes(b"more", timeout=None)
                    case "poll":
                        channel.poll(timeout=None)
            except ChannelError as error:
                return 0 if "DESTROYED" in str(error) or isinstance(error, ChannelDestroyed) else 1
            return 1

        child = bench.until_asked(request)
        channel.destroy()
        assert os.waitpid(child, 0)[1] == 0, what
        # Whatever is in its place now is left alone.
        works(bench)


def an_unknown_node(bench):
    there = bench.channel().serialize()
    # With numbers unknown to libdragon, which would otherwise find the existing objects.
    for value, other in ((utils.host_id(), 4711), (bench.pool.muid, 1 << 40), (bench.uid, 1 << 41)):
        assert value.to_bytes(8, "little") in there, value
        there = there.replace(value.to_bytes(8, "little"), other.to_bytes(8, "little"))
    there = Channel.attach(there)
    assert not there.is_local
    for call in (
        lambda: sender(there).send_bytes(b"lost", timeout=LIMIT),
        lambda: receiver(there).recv_bytes(timeout=LIMIT),
        lambda: there.poll(timeout=LIMIT),
    ):
        error = raises(ChannelError, call)
        assert "DRAGON_NOT_FOUND" in str(error), error
    sender(there, WHEN_IMMEDIATE).send_bytes(b"lost", timeout=LIMIT)
    eventually(lambda: "no such node" in bench.logged())
    works(bench)


def what_is_no_request(bench):
    for gateway in bench.gateways:
        for size in (0, 1, 7, 24, 100, 400, 1000, 5000):
            sender(gateway).send_bytes(os.urandom(size) if size else b"\0", timeout=LIMIT)
    works(bench)


def a_gateway_that_is_full(bench):
    channel = bench.channel(capacity=2 * GATEWAY_CAPACITY)
    put = sender(channel, WHEN_IMMEDIATE)
    bench.pause()
    try:
        for number in range(GATEWAY_CAPACITY):
            put.send_bytes(number.to_bytes(4, "little"), timeout=LIMIT)
        error = raises(Exception, put.send_bytes, b"more", timeout=0.1)
        print(f"a full gateway: {error!r}", flush=True)
    finally:
        bench.agent.send_signal(signal.SIGCONT)
    take = receiver(channel)
    for number in range(GATEWAY_CAPACITY):
        assert take.recv_bytes(timeout=LIMIT) == number.to_bytes(4, "little")
    raises(ChannelEmpty, take.recv_bytes, timeout=0)


def node_updates(bench):
    Channel.ta_update_nodes([(5, int(ipaddress.ip_address("10.0.0.5"))), (6, int(ipaddress.ip_address("10.0.0.6")))])
    channel = bench.channel()
    sender(channel).send_bytes(b"after it", timeout=LIMIT)
    assert receiver(channel).recv_bytes(timeout=LIMIT) == b"after it"


def nothing_is_left_in_the_pool(bench):
    def once():
        channel = bench.channel()
        put, take = sender(channel), receiver(channel)
        for size in (10, 1000, 100000):
            put.send_bytes(bytes(size), timeout=LIMIT)
            take.recv_bytes(timeout=LIMIT)
        for mode in (WHEN_IMMEDIATE, WHEN_BUFFERED):
            for size in (10, 5000):
                sender(channel, mode).send_bytes(bytes(size), timeout=LIMIT)
                take.recv_bytes(timeout=LIMIT)
        handle = sender(channel)
        message = Message.create_alloc(bench.pool, 5000)
        handle.send(message, ownership=handle.transfer_ownership_on_send, timeout=LIMIT)
        take.recv_bytes(timeout=LIMIT)
        channel.poll(timeout=0)
        raises(Exception, take.recv_bytes, timeout=0)
        for handle in (put, take):
            handle.close()
        channel.destroy()

    once()
    used = bench.pool.current_allocations
    for _ in range(20):
        once()
    # The agent frees what it has used a little later.
    eventually(lambda: bench.pool.current_allocations <= used)


def an_agent_that_ends_answers_first(bench):
    channel = bench.channel()

    def failing(call):
        return lambda: 0 if raises(ChannelError, call) else 1

    children = [
        bench.until_asked(failing(lambda: receiver(channel).recv_bytes(timeout=None))),
        bench.until_asked(failing(lambda: channel.poll(timeout=None))),
    ]
    bench.stop()
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    bench.start()
    works(bench)


def an_agent_that_is_killed(bench):
    """A new agent serves the requests that the old one had not taken, each once. Requests that the old one had taken stay
    unanswered: Dragon ends the job."""
    channel = bench.channel()
    put = sender(channel)
    put.send_bytes(b"0", timeout=LIMIT)
    put.send_bytes(b"1", timeout=LIMIT)
    empty = bench.channel()
    taken = bench.until_asked(lambda: receiver(empty).recv_bytes(timeout=None))
    bench.pause()
    later = sender(channel, WHEN_IMMEDIATE)
    later.send_bytes(b"2", timeout=LIMIT)
    bench.agent.kill()
    bench.agent.wait()
    bench.start()
    works(bench)
    take = receiver(channel)
    assert [take.recv_bytes(timeout=LIMIT) for _ in range(3)] == [b"0", b"1", b"2"]
    raises(ChannelEmpty, take.recv_bytes, timeout=0)
    os.kill(taken, signal.SIGKILL)
    os.waitpid(taken, 0)


def an_unknown_version_is_refused(bench):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "dragon/lib").mkdir(parents=True)
        (folder / "dragonhpc-0.14.1.dist-info").mkdir()
        shutil.copy(f"{facts.DRAGON_LIB_DIR}/libdragon.so", folder / "dragon/lib")
        environment = os.environ | {"LD_LIBRARY_PATH": str(folder / "dragon/lib")}
        agent = subprocess.run([AGENT], stdin=subprocess.DEVNULL, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert agent.returncode == 1
    assert "dragonhpc 0.14.1; accepted: 0.15.0" in agent.stderr, agent.stderr


def compiled(name, folder):
    """Compiles a client written in C."""
    program = f"{folder}/{name}"
    source = pathlib.Path(__file__).with_name(f"{name}.c")
    flags = [f"-I{facts.DRAGON_INCLUDE_DIR}", f"-L{facts.DRAGON_LIB_DIR}", f"-Wl,-rpath,{facts.DRAGON_LIB_DIR}", "-ldragon"]
    subprocess.run(["cc", source, "-o", program, *flags], check=True, timeout=LIMIT)
    return program


class LateClient:
    """A client that does not take its answer. The agent waits for it as long as libdragon specifies, but keeps working, so this
    is started before the other cases."""

    def __init__(self, bench):
        self.folder = tempfile.TemporaryDirectory()
        program = compiled("late", self.folder.name)
        channel = utils.B64.bytes_to_str(bench.channel().serialize())
        self.client = subprocess.Popen([program, channel], stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        sender(bench.gateways[2]).send_bytes(utils.B64.str_to_bytes(self.client.stdout.readline().strip()))
        assert self.client.stdout.readline() == "answered\n"
        self.since = time.monotonic()

    def a_late_client(self, bench):
        assert self.client.stdout.readline() == "given up\n"
        assert time.monotonic() - self.since > SETTLE - 1
        assert self.client.wait() == 0
        eventually(lambda: f"process {self.client.pid} was too late" in bench.logged())


CASES = [
    send_in_all_modes,
    get,
    messages_are_placed_where_receivers_want_them,
    a_place_that_is_too_small,
    messages_are_placed_where_senders_want_them,
    marks_of_a_message_travel,
    sends_that_give_their_memory,
    payloads_larger_than_the_budgets,
    time_limits,
    what_is_not_answered_in_time_is_followed_by_what_is,
    polls,
    a_poll_that_waits,
    semaphores,
    barriers,
    order_of_one_handle,
    clients_that_are_killed,
    clients_that_are_killed_while_they_send,
    what_is_no_descriptor,
    what_is_no_request,
    a_channel_that_is_destroyed_meanwhile,
    an_unknown_node,
    a_gateway_that_is_full,
    node_updates,
    nothing_is_left_in_the_pool,
    an_unknown_version_is_refused,
]
# These end the agent, and with it its state of a late client.
LAST = [an_agent_that_ends_answers_first, an_agent_that_is_killed]


def main():
    bench = Bench()
    failed = []
    try:
        late = LateClient(bench)
        for case in (*CASES, late.a_late_client, *LAST):
            if CHOSEN and case.__name__ not in CHOSEN:
                continue
            # Prints where it hangs, and ends this process with all its children.
            faulthandler.dump_traceback_later(CASE, exit=True)
            try:
                case(bench)
                print(f"passed: {case.__name__}", flush=True)
            except Exception:
                traceback.print_exc()
                print(f"FAILED: {case.__name__}", flush=True)
                failed.append(case.__name__)
            faulthandler.cancel_dump_traceback_later()
        bench.stop()
    finally:
        bench.close()
        if failed:
            print(bench.logged(), flush=True)
    return 1 if failed else 0


def guarded():
    """Runs the cases in a separate process, and cleans up if they fail."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    worker = os.fork()
    if worker == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent()
        sys.exit(main())
    try:
        return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    finally:
        try:
            os.kill(worker, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for file in glob.glob(f"/dev/shm/*{NAME}*"):
            os.remove(file)


sys.exit(guarded())
