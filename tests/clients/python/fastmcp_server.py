"""A FastMCP server that sends requests to its client during a call. It serves every version of MCP, but `server/discover` of
its SDK names only 2026-07-28. Prints `ready` and its URL when ready."""

import socket
from dataclasses import dataclass

import fastmcp
import uvicorn

server = fastmcp.FastMCP("asking")


@dataclass
class Name:
    name: str


@server.tool
async def ask(ctx: fastmcp.Context) -> str:
    """Asks for a name, and greets."""
    answer = await ctx.elicit("Who is there?", response_type=Name)
    return f"Hello, {answer.data.name}!" if answer.action == "accept" else answer.action


@server.tool
def seven() -> int:
    """A number, which FastMCP wraps into an object and says so in `_meta`."""
    return 7


listener = socket.create_server(("127.0.0.1", 0), backlog=256)
print(f"ready http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
config = uvicorn.Config(server.http_app(), log_level="error", timeout_graceful_shutdown=1)
uvicorn.Server(config).run(sockets=[listener])
