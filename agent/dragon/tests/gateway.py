"""What unmodified Dragon's clients see of an agent: on one host, without a launcher, at channels that pretend to be remote.

gateway.py AGENT NAME [CASE...]: the agent's program; the name of the pool, whose files are /dev/shm/D<NAME>*.
"""

import ctypes
import ipaddress
import math
import os
import random
import signal
import subprocess
import sys
import time
import traceback

from dragon import utils
from dragon.channels import (
    Channel,
    ChannelBarrierBroken,
    ChannelBarrierReady,
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
from dragon.managed_memory import MemoryAlloc, MemoryPool

REMOTE = ChannelFlags.MASQUERADE_AS_REMOTE
# Descriptors inside the agent's messages are longer than this: shorter payloads travel inline.
INLINE = 328
PR_SET_PDEATHSIG = 1
# Of return_codes.h.
TIMEOUT, BARRIER_BROKEN, BARRIER_READY = 11, 20, 22


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def startup_bytes():
    """As Dragon's `send_startup_info` writes it, for a job of this host."""
    number = lambda value: value.to_bytes(4, "little")
    address = number(int(ipaddress.ip_address("127.0.0.1")))
    head = b"".join(number(value) for value in (1, 7575, 1, 0, 0, 0, 0, 1))
    return head + address + number(2) + b"lo" + address + utils.host_id().to_bytes(8, "little") + number(0)


class Bench:
    """A pool, gateways in it, and an agent."""

    def __init__(self, agent, name):
        self.agent_program = agent
        self.pool = MemoryPool(256 << 20, name, os.getpid())
        self.uid = 100
        self.gateways = []
        os.environ["DRAGON_DEFAULT_PD"] = utils.B64.bytes_to_str(self.pool.serialize())
        os.environ["DRAGON_NUM_GW_CHANNELS_PER_NODE"] = "3"
        os.environ["DRAGON_HSTA_NIC_IDX"] = "0"
        for kind in (1, 2, 3):
            gateway = Channel(self.pool, kind, capacity=2048)
            self.gateways.append(gateway)
            where = utils.B64.bytes_to_str(gateway.serialize())
            os.environ[f"DRAGON_GW{kind}"] = where
            os.environ[f"DRAGON_HSTA_GW{kind}_TIDX0"] = where
        register_gateways_from_env()
        self.start()

    def start(self):
        self.agent = subprocess.Popen(
            [self.agent_program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"LD_LIBRARY_PATH": facts.DRAGON_LIB_DIR},
            preexec_fn=die_with_parent,
        )
        self.agent.stdin.write(startup_bytes())
        self.agent.stdin.flush()
        line = self.agent.stdout.readline()
        assert line.startswith(b"HSTA_CHILD_READY"), line

    def stop(self):
        self.agent.terminate()
        assert self.agent.wait(20) == 0

    def channel(self, **kinds):
        self.uid += 1
        return Channel(self.pool, self.uid, flags=REMOTE, **kinds)

    def local(self, channel):
        """The same channel, without the pretence."""
        return Channel.attach(channel.serialize())

    def close(self):
        self.agent.kill()
        self.agent.wait()
        self.pool.destroy()


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


def send_in_all_modes(bench):
    for mode in (WHEN_IMMEDIATE, WHEN_BUFFERED, WHEN_DEPOSITED, WHEN_RECEIVED):
        for size in (1, 100, INLINE, 1000, 5000, 3 << 20):
            channel = bench.channel()
            take = receiver(bench.local(channel))
            data = os.urandom(size)
            sender(channel, mode).send_bytes(data, timeout=20)
            got = take.recv_bytes(timeout=20)
            assert got == data, (mode, size)
            channel.destroy()


def get(bench):
    for size in (1, 100, 1000, 5000, 3 << 20):
        channel = bench.channel()
        data = os.urandom(size)
        sender(bench.local(channel)).send_bytes(data, timeout=20)
        assert receiver(channel).recv_bytes(timeout=20) == data
        channel.destroy()


def get_into_memory_of_ones_own(bench):
    channel = bench.channel()
    data = os.urandom(3000)
    put, take = sender(bench.local(channel)), receiver(channel)
    place = bench.pool.alloc(5000)
    put.send_bytes(data)
    got = take.recv(Message.create_from_mem(place), timeout=20)
    assert got.tobytes() == data
    assert bytes(place.get_memview()[: len(data)]) == data


def marks_of_a_message_travel(bench):
    channel = bench.channel()
    message = Message.create_alloc(bench.pool, 10, clientid=77, hints=88)
    message.bytes_memview()[:] = b"0123456789"
    handle = sender(channel)
    handle.send(message, ownership=handle.copy_on_send, timeout=20)
    message.destroy()
    got = receiver(channel).recv(timeout=20)
    assert (got.tobytes(), got.clientid, got.hints) == (b"0123456789", 77, 88)
    got.destroy()


def sends_that_give_their_memory(bench):
    for mode in (WHEN_IMMEDIATE, WHEN_BUFFERED, WHEN_DEPOSITED, WHEN_RECEIVED):
        for size in (100, 5000):
            channel = bench.channel()
            message = Message.create_alloc(bench.pool, size)
            message.bytes_memview()[:] = b"x" * size
            handle = sender(channel, mode)
            handle.send(message, ownership=handle.transfer_ownership_on_send, timeout=20)
            assert receiver(channel).recv_bytes(timeout=20) == b"x" * size
            channel.destroy()


def time_limits(bench):
    channel = bench.channel(capacity=1)
    put, take = sender(channel), receiver(channel)
    for timeout, kinds in ((0, ChannelEmpty), (0.001, ChannelRecvTimeout), (0.3, ChannelRecvTimeout)):
        begin = time.monotonic()
        raises((kinds, TimeoutError), take.recv_bytes, timeout=timeout)
        assert time.monotonic() - begin >= timeout
    put.send_bytes(b"only", timeout=20)
    for timeout, kinds in ((0, ChannelFull), (0.001, ChannelSendTimeout), (0.3, ChannelSendTimeout)):
        begin = time.monotonic()
        raises((kinds, TimeoutError), put.send_bytes, b"more", timeout=timeout)
        assert time.monotonic() - begin >= timeout
    assert take.recv_bytes(timeout=20) == b"only"
    raises(ChannelEmpty, take.recv_bytes, timeout=0)


def poll(channel, event, timeout=20):
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
        os._exit(0 if channel.poll(timeout=20, event_mask=EventType.POLLIN) else 1)
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
    # One more than its parties has to wait, and nobody else because of that.
    assert poll(channel, EventType.POLLBARRIER, 0.1)[1] == TIMEOUT
    assert poll(channel, EventType.POLLBARRIER_RELEASE, 0)[1] == 0
    assert len(take.recv_bytes(timeout=20)) == len(take.recv_bytes(timeout=20)) > 0
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
            put.send_bytes(number.to_bytes(4, "little") * (1 if number % 3 else 200), timeout=20)
        os._exit(0)
    take = receiver(channel)
    for number in range(count):
        assert int.from_bytes(take.recv_bytes(timeout=20)[:4], "little") == number
    assert os.waitpid(child, 0)[1] == 0


# A process of its own: after a fork libdragon tells agents the parent's process id.
WAITING_CLIENT = """
import sys
from dragon.channels import Channel, ChannelFlags, register_gateways_from_env
from dragon.managed_memory import MemoryPool
from dragon.utils import B64
register_gateways_from_env()
channel = Channel(MemoryPool.attach_default(), int(sys.argv[1]), flags=ChannelFlags.MASQUERADE_AS_REMOTE)
print(B64.bytes_to_str(channel.serialize()), flush=True)
if sys.argv[2] == "get":
    handle = channel.recvh()
    handle.open()
    handle.recv_bytes(timeout=None)
else:
    channel.poll(timeout=None)
"""


def kept(bench, channel):
    """Whether a message is still there after the agent has tried everything once."""
    works = bench.channel()
    poll(works, EventType.POLLSIZE)
    return channel.num_msgs > 0


def clients_that_are_killed(bench):
    for what in ("get", "poll") * 3:
        bench.uid += 1
        child = subprocess.Popen(
            [sys.executable, "-c", WAITING_CLIENT, str(bench.uid), what],
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        channel = Channel.attach(utils.B64.str_to_bytes(child.stdout.readline().decode().strip()))
        # At any point of its request; mostly while the agent has that.
        time.sleep(random.uniform(0, 0.1))
        child.kill()
        child.wait()
        put = sender(channel)
        works = bench.channel()
        sender(works).send_bytes(b"others go on", timeout=20)
        assert receiver(works).recv_bytes(timeout=20) == b"others go on"
        # The dead one's request takes messages until it is noticed, and then none.
        put.send_bytes(b"kept")
        eventually(lambda: kept(bench, channel) or put.send_bytes(b"kept"))


def what_is_no_descriptor(bench):
    channel = bench.channel()
    real = channel.serialize()
    channel.destroy()
    # Its pool does not exist.
    other = MemoryPool(4 << 20, f"{sys.argv[2]}x", os.getpid() + 1)
    gone = Channel(other, 5000, flags=REMOTE)
    put, take = sender(gone), receiver(gone)
    files = [f"/dev/shm/D{sys.argv[2]}x{kind}" for kind in "MD"]
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
    channel = bench.channel()
    sender(channel).send_bytes(b"the agent knows it now", timeout=20)
    receiver(channel).recv_bytes(timeout=20)
    child = os.fork()
    if child == 0:
        die_with_parent()
        try:
            receiver(channel).recv_bytes(timeout=5)
        except Exception as error:
            print(f"its channel destroyed: {error!r}", flush=True)
            os._exit(0)
        os._exit(1)
    time.sleep(0.5)
    channel.destroy()
    assert os.waitpid(child, 0)[1] == 0
    # Whatever is there now is left alone.
    works = bench.channel()
    sender(works).send_bytes(b"works", timeout=20)
    assert receiver(works).recv_bytes(timeout=20) == b"works"


def node_updates(bench):
    Channel.ta_update_nodes([(5, int(ipaddress.ip_address("10.0.0.5"))), (6, int(ipaddress.ip_address("10.0.0.6")))])
    channel = bench.channel()
    sender(channel).send_bytes(b"after it", timeout=20)
    assert receiver(channel).recv_bytes(timeout=20) == b"after it"


def nothing_is_left_in_the_pool(bench):
    def once():
        channel = bench.channel()
        put, take = sender(channel), receiver(channel)
        for size in (10, 1000, 100000):
            put.send_bytes(bytes(size), timeout=20)
            take.recv_bytes(timeout=20)
        for mode in (WHEN_IMMEDIATE, WHEN_BUFFERED):
            for size in (10, 5000):
                sender(channel, mode).send_bytes(bytes(size), timeout=20)
                take.recv_bytes(timeout=20)
        handle = sender(channel)
        message = Message.create_alloc(bench.pool, 5000)
        handle.send(message, ownership=handle.transfer_ownership_on_send, timeout=20)
        take.recv_bytes(timeout=20)
        channel.poll(timeout=0)
        raises(Exception, take.recv_bytes, timeout=0)
        for handle in (put, take):
            handle.close()
        channel.destroy()

    once()
    used = bench.pool.current_allocations
    for _ in range(20):
        once()
    # The agent gives back what it has used a little later.
    eventually(lambda: bench.pool.current_allocations <= used)


def an_agent_that_ends_answers_first(bench):
    channel = bench.channel()
    children = []
    for call in (lambda: receiver(channel).recv_bytes(timeout=None), lambda: channel.poll(timeout=None)):
        child = os.fork()
        if child == 0:
            die_with_parent()
            try:
                call()
            except ChannelError:
                os._exit(0)
            os._exit(1)
        children.append(child)
    time.sleep(0.5)
    bench.stop()
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    bench.start()


CASES = [
    send_in_all_modes,
    get,
    get_into_memory_of_ones_own,
    marks_of_a_message_travel,
    sends_that_give_their_memory,
    time_limits,
    polls,
    a_poll_that_waits,
    semaphores,
    barriers,
    order_of_one_handle,
    clients_that_are_killed,
    what_is_no_descriptor,
    a_channel_that_is_destroyed_meanwhile,
    node_updates,
    nothing_is_left_in_the_pool,
    an_agent_that_ends_answers_first,
]


def main():
    agent, name, *chosen = sys.argv[1:]
    bench = Bench(agent, name)
    failed = []
    try:
        for case in CASES:
            if chosen and case.__name__ not in chosen:
                continue
            # SIGALRM ends the process; the agent with it.
            signal.alarm(60)
            try:
                case(bench)
                print(f"passed: {case.__name__}", flush=True)
            except Exception:
                traceback.print_exc()
                print(f"FAILED: {case.__name__}", flush=True)
                failed.append(case.__name__)
            signal.alarm(0)
        bench.stop()
    finally:
        bench.close()
    sys.exit(1 if failed else 0)


main()
