"""Programs that use Dragon's multiprocessing on all nodes of a job; lab.py runs them.

programs.py [CASE...]: by default all cases except `an_agent_is_killed` and `a_restart`, which end the job.
"""

import hashlib
import os
import socket
import sys
import time
import traceback

import dragon
import multiprocessing as mp
from dragon.infrastructure.policy import Policy
from dragon.native.machine import Node, System

# The time limit of any operation, in seconds, on a busy machine.
LIMIT = 120
LARGE = 20 << 20


def on(host, function, *arguments):
    """Starts a process on a host."""
    with Policy(placement=Policy.Placement.HOST_NAME, host_name=host):
        process = mp.Process(target=function, args=arguments)
        process.start()
    return process


def end_well(*processes):
    for process in processes:
        process.join(LIMIT)
        assert process.exitcode == 0, process


def say_where(queue, host):
    queue.put((host, socket.gethostname()))


def placement(hosts):
    queue = mp.Queue()
    end_well(*[on(host, say_where, queue, host) for host in hosts for _ in range(3)])
    for _ in range(3 * len(hosts)):
        wanted, host = queue.get(timeout=LIMIT)
        assert wanted == host
    assert len(set(hosts)) == len(hosts)


def produce(queue, name, count):
    for number in range(count):
        queue.put((name, number, bytes(number * number % 5000)), timeout=LIMIT)


def consume(queue, results, count):
    results.put([queue.get(timeout=LIMIT) for _ in range(count)])


def queue(hosts):
    """Items of one producer arrive in order, even through a queue with two slots."""
    count = 200
    for size in (0, 2):
        queue, results = mp.Queue(size), mp.Queue()
        producers = [on(host, produce, queue, host, count) for host in hosts]
        consumer = on(hosts[-1], consume, queue, results, count * len(hosts))
        items = results.get(timeout=LIMIT)
        end_well(consumer, *producers)
        for host in hosts:
            of_one = [(number, data) for name, number, data in items if name == host]
            assert of_one == [(number, bytes(number * number % 5000)) for number in range(count)]


def meet(barrier, meetings, queue):
    for number in range(meetings):
        queue.put(number)
        barrier.wait(LIMIT)


def barrier(hosts):
    """No process proceeds before all have arrived."""
    parties, meetings = 2 * len(hosts), 10
    barrier, queue = mp.Barrier(parties), mp.Queue()
    processes = [on(host, meet, barrier, meetings, queue) for host in hosts * 2]
    came = [queue.get(timeout=LIMIT) for _ in range(parties * meetings)]
    end_well(*processes)
    assert came == sorted(came)


def count_up(lock, counter, times):
    for _ in range(times):
        with lock:
            value = counter.value
            time.sleep(0)
            counter.value = value + 1


def lock(hosts):
    lock, counter, times = mp.Lock(), mp.Value("i", 0, lock=False), 30
    end_well(*[on(host, count_up, lock, counter, times) for host in hosts * 2])
    assert counter.value == 2 * times * len(hosts)


def square(number):
    return number * number, socket.gethostname()


def pool(hosts):
    with mp.Pool(2 * len(hosts)) as workers:
        squares = workers.map(square, range(100))
    assert [value for value, _ in squares] == [number * number for number in range(100)]
    return f"workers on {sorted({host for _, host in squares})}"


def pass_on(receive, send, rounds):
    for _ in range(rounds):
        send.send(receive.recv() + [socket.gethostname()])


def connection_ring(hosts):
    """An item returns with the names of all nodes."""
    rounds = 5
    pipes = [mp.Pipe(duplex=False) for _ in range(len(hosts) + 1)]
    processes = [on(host, pass_on, pipes[at][0], pipes[at + 1][1], rounds) for at, host in enumerate(hosts)]
    for size in (1, 500, 3000, 70_000, 1 << 20):
        data = os.urandom(size)
        pipes[0][1].send([data])
        assert pipes[-1][0].poll(LIMIT)
        assert pipes[-1][0].recv() == [data, *hosts]
    end_well(*processes)


def digest(receive, send):
    while data := receive.recv_bytes():
        send.send_bytes(hashlib.sha256(data).digest())


def large_payloads(hosts):
    for host in hosts:
        (there, send), (receive, back) = mp.Pipe(duplex=False), mp.Pipe(duplex=False)
        process = on(host, digest, there, back)
        for size in (1 << 20, (1 << 20) + 1, LARGE):
            data = os.urandom(size)
            send.send_bytes(data)
            assert receive.poll(LIMIT)
            assert receive.recv_bytes() == hashlib.sha256(data).digest()
        send.send_bytes(b"")
        end_well(process)


def echo(receive, send):
    while True:
        send.send(receive.recv())


def an_agent_is_killed(hosts):
    """No more replies arrive; Dragon ends the job and reports it."""
    (there, send), (receive, back) = mp.Pipe(duplex=False), mp.Pipe(duplex=False)
    on(hosts[-1], echo, there, back)
    send.send("first")
    assert receive.recv() == "first"
    print(f"lab: kill {hosts[-1]}", flush=True)
    while True:
        send.send("more")
        receive.recv()


def a_restart(hosts):
    """With a spare node, a job whose agent is killed restarts."""
    if not os.environ.get("DRAGON_RESILIENT_RESTART"):
        an_agent_is_killed(hosts)
    queue(hosts)
    return f"again, on {hosts}"


CASES = [placement, queue, barrier, lock, pool, connection_ring, large_payloads]


def main():
    mp.set_start_method("dragon")
    hosts = sorted(Node(node).hostname for node in System().nodes)
    print(f"nodes: {hosts}", flush=True)
    failed = False
    for case in [globals()[name] for name in sys.argv[1:]] or CASES:
        begin = time.monotonic()
        try:
            said = case(hosts)
            print(f"passed: {case.__name__}, {time.monotonic() - begin:.1f} s{', ' + said if said else ''}", flush=True)
        except Exception:
            traceback.print_exc()
            print(f"FAILED: {case.__name__}", flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
