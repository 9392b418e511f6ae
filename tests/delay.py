"""Forwards the frames of two interfaces to each other, each a while later: delay.py ONE OTHER SECONDS. For kernels without netem."""

import collections
import select
import socket
import sys
import time

SOL_PACKET, VNET_HDR, IGNORE_OUTGOING = 263, 15, 23
ALL = 3
# Frames that wait, in each direction; more are dropped, as a router does.
QUEUE = 4096


def opened(name):
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    # A large frame keeps what the kernel knows of its segments and checksum.
    packets.setsockopt(SOL_PACKET, VNET_HDR, 1)
    packets.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUFFORCE if hasattr(socket, "SO_RCVBUFFORCE") else 33, 16 << 20)
    packets.bind((name, ALL))
    packets.setblocking(False)
    return packets


def main(one, other, delay):
    sides = [opened(one), opened(other)]
    # Frames of each side, with the time at which they go to the other one.
    waiting = {sides[0]: collections.deque(), sides[1]: collections.deque()}
    while True:
        due = min((queue[0][0] for queue in waiting.values() if queue), default=time.monotonic() + 1)
        ready, _, _ = select.select(sides, [], [], max(0, due - time.monotonic()))
        for side in ready:
            try:
                while len(waiting[side]) < QUEUE:
                    waiting[side].append((time.monotonic() + delay, side.recv(1 << 17)))
                side.recv(1 << 17)
            except BlockingIOError:
                pass
        for side, target in zip(sides, reversed(sides), strict=True):
            while waiting[side] and waiting[side][0][0] <= time.monotonic():
                try:
                    target.send(waiting[side].popleft()[1])
                except OSError:
                    pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
