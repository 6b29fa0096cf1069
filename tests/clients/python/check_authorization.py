"""Tests authorization with the official Python client, from a 401 to a call: it discovers the authorization server, registers
there in each way that it supports, signs a user in, and requests more scopes when a call needs them.

Reads WARDGATE_URL and ISSUER from the environment. Prints one line per check. The exit code is not 0 if a check failed.
"""

import asyncio
import logging
import os
import sys
from urllib.parse import parse_qs, urljoin, urlparse

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

URL, ISSUER = os.environ["WARDGATE_URL"], os.environ["ISSUER"]
CALLBACK = "http://127.0.0.1:9/callback"
DOCUMENT = "https://client.example/app.json"
CHECK_SECONDS = 30
TEXT = "This is a simple text response for testing."
PLACES = {"/mcp": "open__test_simple_text", "/mcp/near": "open__test_simple_text", "/mcp/upstream/open": "test_simple_text"}
MODES = ("2026-07-28", "auto", "legacy")


class Storage:
    """The storage of a client."""

    def __init__(self, client=None):
        self.tokens, self.client = None, client

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Person:
    """The user who signs in, with a simulated browser."""

    def __init__(self, name):
        self.name, self.asked = name, []

    async def browse(self, url):
        self.asked.append(parse_qs(urlparse(url).query))
        self.request = f"{url}&login_hint={self.name}"

    async def come_back(self):
        async with httpx2.AsyncClient() as browser:
            url = self.request
            while not url.startswith(CALLBACK):
                response = await browser.get(url)
                assert response.is_redirect, f"{response.status_code} {response.text}"
                url = urljoin(url, response.headers["location"])
        said = {name: values[0] for name, values in parse_qs(urlparse(url).query).items()}
        return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))


def by_login(url, person, storage, document=None):
    metadata = OAuthClientMetadata(
        client_name="wardgate-check",
        redirect_uris=[CALLBACK],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    return OAuthClientProvider(url, metadata, storage, person.browse, person.come_back, client_metadata_url=document)


def registered():
    return OAuthClientInformationFull(
        client_id="registered", redirect_uris=[CALLBACK], token_endpoint_auth_method="none", issuer=ISSUER
    )


# The ways to register a client.
WAYS = {
    "registered beforehand": lambda url, person: by_login(url, person, Storage(registered())),
    "by the URL of its metadata": lambda url, person: by_login(url, person, Storage(), DOCUMENT),
    "registered on the way": lambda url, person: by_login(url, person, Storage()),
    "by a secret of its own": lambda url, person: ClientCredentialsOAuthProvider(
        url, Storage(), "machine", "machine-secret", issuer=ISSUER
    ),
}


async def use(url, auth, mode, tool):
    http = httpx2.AsyncClient(auth=auth, timeout=CHECK_SECONDS)
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert any(it.name == tool for it in tools), [it.name for it in tools]
        return (await client.call_tool(tool, {})).content[0].text


async def goes_all_the_way(way, path, mode):
    person, url = Person("dana"), urljoin(URL, path)
    assert await use(url, WAYS[way](url, person), mode, PLACES[path]) == TEXT
    for asked in person.asked:
        assert asked["resource"] == [url], asked
        # A client may request offline access.
        assert set(asked["scope"][0].split()) <= {"mcp", "offline_access"}, asked
    assert len(person.asked) == (0 if "secret" in way else 1)


async def steps_up(mode):
    person, url = Person("dana"), urljoin(URL, "/mcp")
    auth = by_login(url, person, Storage(registered()))
    assert await use(url, auth, mode, "vault__test_simple_text") == TEXT
    assert [set(asked["scope"][0].split()) - {"offline_access"} for asked in person.asked] == [
        {"mcp"},
        {"mcp", "records"},
    ]


async def report(line, check):
    try:
        await asyncio.wait_for(check, CHECK_SECONDS)
    except Exception as error:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        print(f"FAIL  {line}: {type(error).__name__}: {error}".replace("\n", " "))
        return 1
    print(f"ok    {line}")
    return 0


async def main():
    failed = 0
    for mode in MODES:
        for way in WAYS:
            for path in PLACES:
                line = f"python mcp, {mode}, {path}, {way}: from a 401 to a call"
                failed += await report(line, goes_all_the_way(way, path, mode))
        failed += await report(f"python mcp, {mode}: a call that needs more gets it", steps_up(mode))
    return failed


logging.disable(logging.CRITICAL)
sys.exit(min(asyncio.run(main()), 1))
