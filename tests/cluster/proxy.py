"""The proxy of a Service: forwards each connection to the next ready pod. proxy.py PORT FILE, where FILE lists the pods."""

import asyncio
import json
import socket
import sys
from pathlib import Path


# A pod that acknowledges no packets for this time was lost with its node.
SILENT = 5


def watch(writer):
    """Closes the connection when the pod becomes silent, like a load balancer."""
    side = writer.get_extra_info("socket")
    side.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("KEEPIDLE", 1), ("KEEPINTVL", 1), ("KEEPCNT", SILENT), ("USER_TIMEOUT", SILENT * 1000)):
        side.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"), value)


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main(port, state):
    turn = 0

    async def accept(reader, writer):
        nonlocal turn
        targets = json.loads(Path(state).read_text())
        for _ in targets:
            turn += 1
            host, target = targets[turn % len(targets)]
            try:
                there, back = await asyncio.wait_for(asyncio.open_connection(host, target), 1)
            except (OSError, asyncio.TimeoutError):
                continue
            watch(back)
            await asyncio.gather(pump(reader, back), pump(there, writer))
            return
        writer.close()

    # Listens on both IP families.
    server = await asyncio.start_server(accept, None, port, backlog=1024)
    await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
