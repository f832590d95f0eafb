"""Runs unmodified Dragon on several nodes, which are namespaces of this machine, with our agent instead of Dragon's.

    sudo python lab.py [--nodes N] [--spare N] [--nics K] [--agent PROGRAM | --tcp] PROGRAM [ARGUMENT...]

The Python that runs it must have `dragonhpc`; `dragon` runs PROGRAM. Without --agent the package's own agent runs. Variables
`DRAGON_HSTA_...` and `CONDUIT_...` of this process's environment apply to all nodes. If the program prints a line
`lab: kill nodeI`, the agents of that node are killed. While a file `quiet` exists in the program's home, Dragon's connections
between front end and nodes are stopped, because they spin and compete with the measured processes; the program's output
appears when they resume. The exit code is that of `dragon`, or 1 if `dragon` reported an abnormal exit and there are no spare
nodes.

Everything runs in the script's own namespaces, whose processes end with it: each node has its own network, host name,
processes and shared memory. The script needs root, and `ip`, `unshare` and `nsenter`.
"""

import argparse
import ctypes
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

UNSHARE = ["unshare", "--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
# Set in the new namespaces.
INSIDE = "CONDUIT_LAB_INSIDE"
# Dragon's name of its agent.
AGENT = "dragon-hsta"
# Distinguishes its connections between front end and nodes from its agent over TCP.
OVERLAY = (b"dragon-tcp", b"--infrastructure")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PR_SET_PDEATHSIG = 1
PASSED_ON = re.compile("_?DRAGON_HSTA_|CONDUIT_|RUST_")

# $1: the node's number; $2: the folder with the nodes' boot ids.
NODE = """
set -e
hostname node$1
mount -t tmpfs tmpfs /dev/shm
mount --bind $2/boot.$1 /proc/sys/kernel/random/boot_id
ip link set lo up
echo ready
exec sleep infinity
"""

# A replacement for ssh: options, a host, a command. Passes only part of the environment on.
SSH = """#!/bin/sh
while case $1 in -*) true;; *) false;; esac; do shift; done
process=$(cat LAB/process.$1)
shift
exec nsenter -t $process -n -u -m -i -p -- env -i ENVIRONMENT sh -c "$*"
"""


def run(*command):
    subprocess.run(command, check=True)


class Lab:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.nodes = []
        self.abnormal, self.killed = False, None
        self.package = pathlib.Path(sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages/dragon")
        names = [f"node{number}" for number in range(options.nodes + options.spare)]
        self.files(names)
        for nic in range(options.nics):
            run("ip", "link", "add", self.bridge(nic), "type", "bridge")
            run("ip", "address", "add", f"10.77.{nic}.254/24", "dev", self.bridge(nic))
            run("ip", "link", "set", self.bridge(nic), "up")
        run("ip", "link", "set", "lo", "up")
        # Programs look for a route to find their own address.
        run("ip", "route", "add", "default", "dev", "eth0")
        for number in range(len(names)):
            self.node(number)

    def bridge(self, nic):
        # Dragon's front end accepts only some interface names; one such interface is enough for it.
        return "lan%d" % nic if nic else "eth0"

    def files(self, names):
        """Creates the files that all nodes share, before the nodes."""
        hosts = [f"10.77.0.{number + 1} {name}\n" for number, name in enumerate(names)]
        self.bind("/etc/hosts", "127.0.0.1 localhost\n10.77.0.254 front\n" + "".join(hosts))
        self.bind("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
        self.bind("/etc/resolv.conf", "")
        run("hostname", "front")
        run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        for name in ("front", *range(len(names))):
            (self.folder / f"boot.{name}").write_text(f"{uuid.uuid4()}\n")
        run("mount", "--bind", self.folder / "boot.front", BOOT_ID)
        if self.options.agent:
            run("mount", "--bind", self.options.agent, self.package / "bin" / AGENT)
        (self.folder / "bin").mkdir()
        ssh = self.folder / "bin/ssh"
        passed = {name: value for name, value in os.environ.items() if PASSED_ON.match(name)}
        passed |= {"HOME": str(self.folder), "TMPDIR": str(self.folder), "PATH": os.environ["PATH"]}
        environment = " ".join(shlex.quote(f"{name}={value}") for name, value in passed.items())
        ssh.write_text(SSH.replace("LAB", str(self.folder)).replace("ENVIRONMENT", environment))
        ssh.chmod(0o755)

    def bind(self, path, content):
        if os.path.exists(path):
            file = self.folder / os.path.basename(path)
            file.write_text(content)
            run("mount", "--bind", file, path)

    def node(self, number):
        node = subprocess.Popen([*UNSHARE, "sh", "-c", NODE, "node", str(number), self.folder], stdout=subprocess.PIPE)
        assert node.stdout.readline() == b"ready\n"
        # The one process that unshare has forked.
        process = next(child for child in processes() if parent(child) == node.pid)
        (self.folder / f"process.node{number}").write_text(str(process))
        self.nodes.append(process)
        inside = ["nsenter", "-t", str(process), "-n", "ip"]
        for nic in range(self.options.nics):
            port = f"port{number}.{nic}"
            run("ip", "link", "add", port, "type", "veth", "peer", "name", f"eth{nic}", "netns", str(process))
            run("ip", "link", "set", port, "master", self.bridge(nic), "up")
            run(*inside, "address", "add", f"10.77.{nic}.{number + 1}/24", "dev", f"eth{nic}")
            run(*inside, "link", "set", f"eth{nic}", "up")
        run(*inside, "route", "add", "default", "via", "10.77.0.254")

    def kill_agents(self, name):
        there = os.readlink(f"/proc/{self.nodes[int(name.removeprefix('node'))]}/ns/pid")
        for process in processes():
            try:
                program = os.path.basename(os.readlink(f"/proc/{process}/exe"))
                if program == AGENT and os.readlink(f"/proc/{process}/ns/pid") == there:
                    print(f"lab: killing agent {process} of {name}", flush=True)
                    os.kill(process, signal.SIGKILL)
            except OSError:
                continue

    def keep_quiet(self):
        held = False
        while True:
            if (self.folder / "quiet").exists() != held:
                held = not held
                for process in processes():
                    words = command_line(process)
                    if all(word in words for word in OVERLAY):
                        os.kill(process, signal.SIGSTOP if held else signal.SIGCONT)
            time.sleep(0.05)

    def dragon(self, program):
        options = self.options
        hosts = ",".join(f"node{number}" for number in range(len(self.nodes)))
        transport = "tcp" if options.tcp else "hsta"
        command = ["dragon", "-w", "ssh", "--hostlist", hosts, "-t", transport]
        command += ["-o", options.overlay] if options.overlay else []
        command += ["--resilient", f"--nodes={options.nodes}"] if options.spare else []
        command += program
        environment = os.environ | {
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "DRAGON_DEFAULT_SEG_SZ": str(1 << 30),
            "DRAGON_INF_SEG_SZ": str(256 << 20),
        }
        begin = time.monotonic()
        job = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # All other processes of its namespaces end with this one.
        timer = threading.Timer(options.limit, lambda: (print("lab: too late", flush=True), os._exit(1)))
        timer.daemon = True
        timer.start()
        threading.Thread(target=self.keep_quiet, daemon=True).start()
        reader = threading.Thread(target=self.read, args=(job.stdout,), daemon=True)
        reader.start()
        code = job.wait()
        now = time.monotonic()
        # Others may keep its output open for longer.
        reader.join(5)
        timer.cancel()
        abnormal, killed = self.abnormal, self.killed
        late = f", {now - killed:.1f} s after the agent was killed" if killed else ""
        print(f"lab: dragon has ended with {code} after {now - begin:.1f} s{late}; abnormal: {abnormal}", flush=True)
        return code or int(abnormal and not options.spare)

    def read(self, output):
        for line in output:
            print(line, end="", flush=True)
            self.abnormal |= "abnormal" in line.lower()
            if found := re.search(r"lab: kill (node\d+)", line):
                self.killed = time.monotonic()
                self.kill_agents(found[1])


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_line(process):
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def parent(process):
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    return int(status.rpartition(")")[2].split()[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--spare", type=int, default=0, help="additional nodes on which the job continues if one is lost")
    parser.add_argument("--nics", type=int, default=1, help="interfaces, and therefore agents, per node")
    parser.add_argument("--agent", type=os.path.abspath, help="the program to run instead of dragon-hsta")
    parser.add_argument("--tcp", action="store_true", help="use Dragon's agent over TCP, in Python")
    parser.add_argument("--overlay", choices=["tcp", "hsta"], help="the agents between front end and nodes")
    parser.add_argument("--limit", type=int, default=600, help="time limit in seconds")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if INSIDE not in os.environ:
        # The folder is removed whatever happens inside.
        with tempfile.TemporaryDirectory(prefix="conduit-lab-") as folder:
            path = f"{sys.prefix}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
            inside = subprocess.Popen(
                [*UNSHARE, sys.executable, *sys.argv],
                env=os.environ | {INSIDE: folder, "PATH": path, "VIRTUAL_ENV": sys.prefix},
                preexec_fn=die_with_parent,
            )
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
            try:
                sys.exit(inside.wait(options.limit + 60))
            finally:
                inside.kill()
                inside.wait()
    sys.exit(Lab(options, pathlib.Path(os.environ[INSIDE])).dragon(options.program))


main()
