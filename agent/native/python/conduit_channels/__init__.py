"""Channels between processes of several nodes, through Conduit's node agent (``conduit-hsta --native``).

    import conduit_channels as channels

    channel = channels.create()
    print(channel)                              # pass this to any process, on any node
    channels.attach(text).send(b"hello")        # there
    channel.receive(timeout=10)                 # b"hello"

Channels can be pickled, and therefore passed through ``multiprocessing``. ``CONDUIT_AGENT`` names the agent. The library
``libconduit_channels.so`` is loaded from ``CONDUIT_CHANNELS_LIBRARY`` if that is set, else from beside this file, else from
where the system finds it.
"""

import atexit
import ctypes
import os
import threading
import time

__all__ = [
    "Channel", "ChannelError", "Empty", "Full", "Timeout", "Destroyed", "GatewayFull", "attach", "create",
    "IMMEDIATELY", "BUFFERED", "DEPOSITED", "RECEIVED", "NONE",
    "IN", "OUT", "IN_OR_OUT", "EMPTY", "FULL", "SIZE", "CAPACITY",
]

#: When a send is complete: when the agent has it; when it is on its way; when it is in the channel; when it was taken; at once.
IMMEDIATELY, BUFFERED, DEPOSITED, RECEIVED, NONE = range(5)
#: States that ``poll`` waits for.
IN, OUT, IN_OR_OUT, EMPTY, FULL, SIZE, CAPACITY = 1, 2, 3, 4, 5, 6, 8

_DESCRIPTOR = 32
#: The maximum duration of a call in seconds, so that Python handles signals between calls.
_SLICE = 0.5


class ChannelError(OSError):
    """An operation on a channel failed; ``code`` is the reason."""

    def __init__(self, code):
        text = ctypes.create_string_buffer(200)
        _library().conduit_channels_describe(code, text, len(text))
        super().__init__(text.value.decode())
        self.code = code

    def __reduce__(self):
        return type(self), (self.code,)


class Empty(ChannelError):
    """The channel had no message, and the operation was to be tried once."""


class Full(ChannelError):
    """The channel had no room, and the operation was to be tried once."""


class Timeout(ChannelError, TimeoutError):
    """The operation timed out."""

    code = 11


class Destroyed(ChannelError):
    """The channel was destroyed."""


class GatewayFull(ChannelError):
    """This node's agent accepts no more requests."""


_ERRORS = {Timeout.code: Timeout, 42: Empty, 43: Full, 120: Destroyed, 10_001: GatewayFull}


def _check(code):
    if code:
        raise _ERRORS.get(code, ChannelError)(code)


class _Message(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_void_p), ("length", ctypes.c_size_t), ("hints", ctypes.c_uint64), ("sender", ctypes.c_uint64),
    ]


def _load():
    name = "libconduit_channels.so"
    beside = os.path.join(os.path.dirname(__file__), name)
    path = os.environ.get("CONDUIT_CHANNELS_LIBRARY") or (beside if os.path.exists(beside) else name)
    library = ctypes.CDLL(path)
    word, time_, client, text = ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
    size, code, descriptor = ctypes.c_size_t, ctypes.c_uint32, ctypes.c_char_p
    for function, result, arguments in [
        ("open", client, [text, text, size]),
        ("settle", None, [client]),
        ("describe", None, [code, text, size]),
        ("create", code, [client, code, code, ctypes.c_bool, descriptor]),
        ("destroy", code, [client, descriptor]),
        ("handle", word, [client]),
        ("send", code, [client, descriptor, word, ctypes.c_void_p, size, word, ctypes.c_uint8, time_]),
        ("receive", code, [client, descriptor, time_, ctypes.POINTER(_Message)]),
        ("free", None, [ctypes.c_void_p, size]),
        ("poll", code, [client, descriptor, ctypes.c_uint16, time_, ctypes.POINTER(word)]),
    ]:
        function = getattr(library, "conduit_channels_" + function)
        function.restype, function.argtypes = result, arguments
    return library


_lock = threading.Lock()
_loaded = None
#: The process that has connected, and its client. A forked child makes a new connection.
_client = (None, None)


def _forget_lock():
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def _library():
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load()
        return _loaded


def _connection():
    global _client
    library = _library()
    with _lock:
        process, client = _client
        if process != os.getpid():
            error = ctypes.create_string_buffer(300)
            client = library.conduit_channels_open(None, error, len(error))
            if not client:
                raise ConnectionError(error.value.decode())
            _client = os.getpid(), client
        return library, client


@atexit.register
def _settle():
    """Waits until the agent has taken the messages that were sent without waiting. Threads may still use the client."""
    process, client = _client
    if process == os.getpid():
        _loaded.conduit_channels_settle(client)


def _nanoseconds(timeout):
    return -1 if timeout is None else max(0, int(timeout * 1e9))


def _sliced(timeout, call):
    """Repeats a call with short time-outs until the time has passed."""
    if timeout == 0:
        return _check(call(0))
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
        code = call(max(1, _nanoseconds(left)))
        if code != Timeout.code or (end is not None and time.monotonic() >= end):
            return _check(code)


def create(capacity=100, block=1024, outlives=False):
    """Creates a channel on this node with room for ``capacity`` messages. Messages of up to ``block`` bytes have their own
    memory. The channel ends with this process unless it ``outlives`` it."""
    library, client = _connection()
    descriptor = ctypes.create_string_buffer(_DESCRIPTOR)
    _check(library.conduit_channels_create(client, capacity, block, outlives, descriptor))
    return Channel(descriptor.raw)


def attach(descriptor):
    """Returns the channel with a descriptor, given as bytes or text. Whether it exists shows on first use."""
    return Channel(bytes.fromhex(descriptor) if isinstance(descriptor, str) else bytes(descriptor))


class Channel:
    """A bounded queue of messages on some node. Messages sent through one object stay in order.

    Time-outs are in seconds; 0 tries once, ``None`` is unlimited."""

    def __init__(self, descriptor):
        if len(descriptor) != _DESCRIPTOR:
            raise ValueError(f"the descriptor has {len(descriptor)} bytes; expected {_DESCRIPTOR}")
        self.descriptor = bytes(descriptor)
        self._sender = (None, None)

    def __reduce__(self):
        return Channel, (self.descriptor,)

    def __str__(self):
        return self.descriptor.hex()

    def __repr__(self):
        return f"conduit_channels.attach({str(self)!r})"

    def __eq__(self, other):
        return isinstance(other, Channel) and self.descriptor == other.descriptor

    def __hash__(self):
        return hash(self.descriptor)

    def send(self, message, mode=DEPOSITED, timeout=None, hints=0):
        """Sends bytes, or any object with a buffer. Returns when the send is complete as ``mode`` defines."""
        library, client = _connection()
        if self._sender[0] != client:
            self._sender = client, library.conduit_channels_handle(client)
        message = bytes(memoryview(message))
        _check(library.conduit_channels_send(
            client, self.descriptor, self._sender[1], message, len(message), hints, mode, _nanoseconds(timeout)))

    def receive(self, timeout=None):
        """Takes the next message."""
        return self.receive_with_hints(timeout)[0]

    def receive_with_hints(self, timeout=None):
        """Takes the next message and the number that its sender attached."""
        library, client = _connection()
        message = _Message()
        _sliced(timeout, lambda left: library.conduit_channels_receive(client, self.descriptor, left, message))
        try:
            return ctypes.string_at(message.bytes, message.length), message.hints
        finally:
            library.conduit_channels_free(message.bytes, message.length)

    def poll(self, state=IN, timeout=0):
        """Waits for a state. Returns the number of messages in the channel, or, for ``OUT``, the number it has room
        for."""
        library, client = _connection()
        value = ctypes.c_uint64()
        _sliced(timeout, lambda left: library.conduit_channels_poll(client, self.descriptor, state, left, value))
        return value.value

    def destroy(self):
        """Destroys the channel and its messages. Only possible on its node."""
        library, client = _connection()
        _check(library.conduit_channels_destroy(client, self.descriptor))
