"""Tests the official Python client with a running gateway, for each transport and each protocol version that it supports.
For stdio, it starts `wardgate stdio`.

Reads WARDGATE (the binary), WARDGATE_URL and the tokens DOCTOR, NURSE and BILLING from the environment.
Prints one line per check. The exit code is not 0 if a check failed.
"""

import asyncio
import json
import logging
import os
import sys
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx2
from mcp import Client, ClientSession, MCPError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

WARDGATE, URL, DOCTOR, NURSE, BILLING = (
    os.environ[name] for name in ("WARDGATE", "WARDGATE_URL", "DOCTOR", "NURSE", "BILLING")
)
CHECK_SECONDS = 30
QUIET = open(os.devnull, "w")

TOOLS = ["get_admissions", "get_appointments", "get_medical_records", "get_patient_overview", "get_shifts"]
TOOL = "get_medical_records"
TRIAGE = "guide://triage"
RECORDS = [
    {
        "id": 1,
        "patient_id": "NUGWI",
        "created_at": "2025-11-10T10:00:00Z",
        "updated_at": "2025-11-10T10:00:00Z",
        "record_type": "Diagnosis",
        "content": "Hypertension",
        "note": "Stage 2, requires management",
        "assigned_doctor": "dr.yenji",
    },
    {
        "id": 2,
        "patient_id": "NUGWI",
        "created_at": "2025-11-09T14:30:00Z",
        "updated_at": "2025-11-09T14:30:00Z",
        "record_type": "Treatment",
        "content": "Lisinopril 10mg daily",
        "note": "Well tolerated, monitor BP",
        "assigned_doctor": "dr.yenji",
    },
]
IDENTIFIERS = ("patient_id", "assigned_doctor")


@dataclass(frozen=True)
class Era:
    """A way to open a connection, and the version that must be negotiated."""

    version: str
    mode: str | None
    """The mode of `Client`. Without a mode, a `ClientSession` offers exactly `version`."""
    transport: str = "http"

    @property
    def modern(self) -> bool:
        return self.version == "2026-07-28"

    def __str__(self) -> str:
        return f"{self.transport}, {self.version} ({self.mode or 'offered'})"


def eras_over(transport):
    return [
        Era("2026-07-28", "auto", transport),
        Era("2026-07-28", "2026-07-28", transport),
        Era("2025-11-25", "legacy", transport),
        Era("2025-06-18", None, transport),
        Era("2025-03-26", None, transport),
    ]


ERAS = [
    *eras_over("http"),
    *eras_over("stdio"),
    Era("2025-11-25", "legacy", "sse"),
    Era("2024-11-05", None, "sse"),
]


@asynccontextmanager
async def connect(era, token, statuses=None):
    """A connected client. The HTTP status of every response is added to `statuses`."""
    async with AsyncExitStack() as stack:
        match era.transport:
            case "stdio":
                transport = over_stdio(token)
            case "sse":
                transport = sse_client(URL.removesuffix("/mcp") + "/sse", headers=bearer(token))
            case _:
                transport = await over_http(stack, token, statuses)
        if era.mode:
            yield await stack.enter_async_context(Client(transport, mode=era.mode))
        else:
            read, write = await stack.enter_async_context(transport)
            session = await stack.enter_async_context(ClientSession(read, write))
            session.adopt(await session.send_request(initialize(era.version), types.InitializeResult))
            await session.send_notification(types.InitializedNotification())
            yield session


async def over_http(stack, token, statuses):
    async def note(response):
        if statuses is not None:
            statuses.append(response.status_code)

    http = httpx2.AsyncClient(headers=bearer(token), event_hooks={"response": [note]}, timeout=CHECK_SECONDS)
    return streamable_http_client(URL, http_client=await stack.enter_async_context(http))


def over_stdio(token):
    # The token is in the environment, because other processes could read it on the command line.
    bridge = StdioServerParameters(command=WARDGATE, args=["stdio", "--url", URL], env={"WARDGATE_TOKEN": token})
    return stdio_client(bridge, errlog=QUIET)


def bearer(token):
    return {"Authorization": f"Bearer {token}"} if token else {}


def initialize(version):
    return types.InitializeRequest(
        params=types.InitializeRequestParams(
            protocol_version=version,
            capabilities=types.ClientCapabilities(),
            client_info=types.Implementation(name="wardgate-check", version="1"),
        )
    )


async def records(client, patient="NUGWI"):
    return await client.call_tool(TOOL, {"patient_id": patient})


def text(result):
    assert [block.type for block in result.content] == ["text"], result
    return result.content[0].text


async def refusal(call):
    """The protocol error of `call`."""
    try:
        result = await call
    except MCPError as error:
        return error
    raise AssertionError(f"not refused: {result}")


async def outside(method, **params):
    """Makes calls as a doctor, without the tested client."""
    headers = {"Authorization": f"Bearer {DOCTOR}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx2.AsyncClient(headers=headers, timeout=CHECK_SECONDS) as http:
        answer = (await http.post(URL, json=body)).json()
    assert "result" in answer, answer


CHECKS = []


def check(promise, eras=lambda era: True):
    def add(function):
        CHECKS.append((promise, eras, function))
        return function

    return add


# A client with a pinned version does not negotiate.
@check("they agree on the version, and the server says who it is", lambda era: era.mode != era.version)
async def agree(era):
    async with connect(era, DOCTOR) as client:
        session = getattr(client, "session", client)
        assert session.protocol_version == era.version, session.protocol_version
        assert session.server_info.name == "wardgate", session.server_info
        assert session.server_capabilities.tools is not None, session.server_capabilities
        assert session.instructions, "no instructions"


@check("a doctor lists the tools of a doctor, with their schemas")
async def lists(era):
    async with connect(era, DOCTOR) as client:
        listed = await client.list_tools()
    assert sorted(tool.name for tool in listed.tools) == TOOLS, listed
    schema = next(tool.input_schema for tool in listed.tools if tool.name == TOOL)
    assert schema["required"] == ["patient_id"], schema
    assert listed.next_cursor is None, listed.next_cursor


@check("a doctor reads the records of their patient")
async def reads(era):
    async with connect(era, DOCTOR) as client:
        result = await records(client)
    assert not result.is_error, result
    assert json.loads(text(result)) == {"data": RECORDS}, result
    structured = None if era.version < "2025-06-18" else {"data": RECORDS}
    assert result.structured_content == structured, result.structured_content


@check("each call has an id and a receipt of its own")
async def receipts(era):
    async with connect(era, DOCTOR) as client:
        first, second = [(await records(client)).meta for _ in range(2)]
    assert first["dev.wardgate/callId"] != second["dev.wardgate/callId"], first
    leaves = [meta["dev.wardgate/receipt"]["leafHash"] for meta in (first, second)]
    assert len(leaves[0]) == 64 and leaves[0] != leaves[1], leaves


@check("a nurse reads the same records with identifiers masked")
async def masks(era):
    async with connect(era, NURSE) as client:
        result = await records(client)
    assert not result.is_error, result
    masked = json.loads(text(result))["data"]
    for got, clear in zip(masked, RECORDS, strict=True):
        for field in IDENTIFIERS:
            assert got[field] and got[field] != clear[field], got
        assert {**got, **{field: clear[field] for field in IDENTIFIERS}} == clear, got
    whole = result.model_dump_json()
    for identifier in (RECORDS[0][field] for field in IDENTIFIERS):
        assert identifier not in whole, whole


@check("billing does not see the tool, and is refused as if there were none")
async def hides(era):
    async with connect(era, BILLING) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["get_patient_overview"]
        hidden = await refusal(records(client))
        unknown = await refusal(client.call_tool("no_such_tool", {"patient_id": "NUGWI"}))
    assert hidden.code == unknown.code == types.INVALID_PARAMS, (hidden, unknown)
    assert hidden.message.replace(TOOL, "no_such_tool") == unknown.message, (hidden, unknown)


@check("a name that no header can carry as it is, is still just an unknown tool")
async def encodes(era):
    async with connect(era, DOCTOR) as client:
        for name in ("Blutdruck prüfen", " padded ", "=?base64?eA==?="):
            error = await refusal(client.call_tool(name, {}))
            assert error.code == types.INVALID_PARAMS and name in error.message, error


@check("wrong arguments end in a result that names what to fix")
async def explains(era):
    async with connect(era, DOCTOR) as client:
        for arguments in ({"patient_id": "nugwi"}, {"patient_id": "NUGWI", "limit": 0}, {}):
            result = await client.call_tool(TOOL, arguments)
            assert result.is_error, result
            assert ("limit" if "limit" in arguments else "patient_id") in text(result), result
        result = await records(client, "NOGWI")
        assert result.is_error and text(result) == "Invalid patient_id: NOGWI", result


@check("a nurse has the guides and a prompt: listed, completed, filled in, read")
async def guides(era):
    async with connect(era, NURSE) as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.name == "summarise_chart", prompt
        assert [argument.name for argument in prompt.arguments if argument.required] == ["patient_id"], prompt
        reference = types.PromptReference(type="ref/prompt", name=prompt.name)
        completed = await client.complete(reference, {"name": "tone", "value": "p"})
        assert completed.completion.values == ["plain"], completed
        got = await client.get_prompt(prompt.name, {"patient_id": "NUGWI", "tone": "plain"})
        assert "in plain language" in got.messages[0].content.text, got
        assert got.messages[1].content.resource.uri == TRIAGE, got
        listed = await client.list_resources()
        assert TRIAGE in [resource.uri for resource in listed.resources], listed
        templates = await client.list_resource_templates()
        assert "guide://ward/{ward}" in [template.uri_template for template in templates.resource_templates], templates
        for uri, words in ((TRIAGE, "| orange |"), ("guide://ward/W2", "# Ward W2")):
            read = await client.read_resource(uri)
            assert read.contents[0].uri == uri and words in read.contents[0].text, read


@check("billing has none of them, and is refused as if there were none")
async def hides_guides(era):
    async with connect(era, BILLING) as client:
        assert (await client.list_prompts()).prompts == []
        prompt = await refusal(client.get_prompt("summarise_chart", {"patient_id": "NUGWI"}))
        assert prompt.code == types.INVALID_PARAMS, prompt
        refused = [await refusal(client.read_resource(uri)) for uri in (TRIAGE, "guide://nothing")]
    code = types.INVALID_PARAMS if era.modern else -32002
    assert [error.code for error in refused] == [code, code], refused


def wrong_tokens():
    payload, signature = DOCTOR.rpartition(".")[0], BILLING.rpartition(".")[2]
    return "", f"{payload}.{signature}"


@check("without a token, or with a forged one, every answer is 401", lambda era: era.transport == "http")
async def unauthorised(era):
    for token in wrong_tokens():
        statuses = []
        try:
            async with connect(era, token, statuses) as client:
                await client.list_tools()
        except Exception as error:
            assert [type(leaf) for leaf in leaves(error)] == [MCPError], leaves(error)
        else:
            raise AssertionError("not refused")
        assert statuses and set(statuses) == {401}, statuses


# In an older version, the client opens its stream only if it received a session, but the gateway creates none.
@check("a client hears when one of its conversations changes", lambda era: era.modern)
async def hears(era):
    conversation = f"heard-{uuid.uuid4()}"
    uri = f"memory://conversation/{conversation}"
    await outside("memory/get_or_create", conversation_id=conversation)
    async with connect(era, DOCTOR) as client, client.listen(resource_subscriptions=[uri]) as changes:
        assert changes.honored.resource_subscriptions == [uri], changes.honored
        await outside("memory/add_message", conversation_id=conversation, role="user", content="hello")
        event = await anext(changes)
    assert event.uri == uri, event


@check("without a token, or with a forged one, there is no stream", lambda era: era.transport == "sse")
async def unauthorised_stream(era):
    for token in wrong_tokens():
        try:
            async with connect(era, token) as client:
                await client.list_tools()
        except Exception as error:
            assert [type(leaf) for leaf in leaves(error)] == [httpx2.HTTPStatusError], leaves(error)
            assert leaves(error)[0].response.status_code == 401, leaves(error)
        else:
            raise AssertionError("not refused")


@check("without a token, or with a forged one, every request ends and says what to fix", lambda era: era.transport == "stdio")
async def unauthorised_bridge(era):
    for token in wrong_tokens():
        try:
            async with connect(era, token) as client:
                await client.list_tools()
        except Exception as error:
            assert [type(leaf) for leaf in leaves(error)] == [MCPError], leaves(error)
            assert "WARDGATE_TOKEN" in str(leaves(error)[0]), leaves(error)
        else:
            raise AssertionError("not refused")


@check("ping is answered", lambda era: not era.modern)
async def pings(era):
    async with connect(era, DOCTOR) as client:
        await getattr(client, "session", client).send_ping()


class Complaints(logging.Handler):
    """Collects the warnings of the client library."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def leaves(error):
    """The errors in the exception group of a task group."""
    inner = getattr(error, "exceptions", None)
    return [leaf for part in inner for leaf in leaves(part)] if inner else [error]


async def main():
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    failed = False
    for era in ERAS:
        for promise, eras, function in CHECKS:
            if not eras(era):
                continue
            line = f"python mcp, {era}: {promise}"
            complaints.messages.clear()
            try:
                with anyio.fail_after(CHECK_SECONDS):
                    await function(era)
                assert not complaints.messages, f"the client complained: {complaints.messages}"
                print(f"ok    {line}")
            except Exception as error:
                failed = True
                reasons = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
                print(f"FAIL  {line}: {reasons}".replace("\n", " "))
    return 1 if failed else 0


sys.exit(asyncio.run(main()))
