// Tests which tokens of a real authorization server the gateway accepts, and where.
//
// Reads WARDGATE_URL and the issuers ISSUER, BRIEF (whose tokens expire soon) and STRANGER (which is not trusted) from the
// environment. Prints one line per check. The exit code is not 0 if a check failed.

import assert from 'node:assert/strict';
import { createPublicKey, randomUUID } from 'node:crypto';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';
import { SignJWT, exportJWK, generateKeyPair } from 'jose';
import { tokensOf } from './browser.mjs';

const { WARDGATE_URL, ISSUER, BRIEF, STRANGER } = process.env;
const MACHINE = { client_id: 'machine', client_secret: 'machine-secret' };
const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
};
const route = `${WARDGATE_URL}/upstream/open`;

async function form(issuer, body) {
  const response = await fetch(`${issuer}/token`, { method: 'POST', body: new URLSearchParams(body) });
  const answer = await response.json();
  assert(response.ok, JSON.stringify(answer));
  return answer;
}

const machine = async (resource, { issuer = ISSUER, scope = 'mcp' } = {}) => {
  const grant = { ...MACHINE, grant_type: 'client_credentials', resource, scope };
  return (await form(issuer, grant)).access_token;
};

const person = (who, scope) => tokensOf(ISSUER, who, { resource: WARDGATE_URL, scope });

async function ask(url, token, method = 'tools/list', params = {}) {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      ...(token && { authorization: `Bearer ${token}` }),
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      ...(params.name && { 'mcp-name': params.name }),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: META } }),
  });
  const text = await response.text();
  const lines = text.split('\n').filter(line => line.startsWith('data: {'));
  const body = JSON.parse(lines.length > 0 ? lines.at(-1).slice(6) : text);
  return { status: response.status, challenge: response.headers.get('www-authenticate'), body };
}

async function taken(url, token) {
  const { status, body } = await ask(url, token);
  assert.equal(status, 200, JSON.stringify(body));
  assert(Array.isArray(body.result.tools), JSON.stringify(body));
  return body.result.tools;
}

async function refused(url, token, why) {
  const { status, challenge, body } = await ask(url, token);
  assert.equal(status, 401, JSON.stringify(body));
  assert(challenge.includes('error="invalid_token"'), challenge);
  assert(challenge.includes(why), challenge);
  assert(challenge.includes('scope="mcp"'), challenge);
}

const base64 = value => Buffer.from(JSON.stringify(value)).toString('base64url');

const CHECKS = {
  async 'a client that shows its secret calls, with the roles that the server gives it'() {
    const tools = await taken(WARDGATE_URL, await machine(WARDGATE_URL));
    assert(tools.some(tool => tool.name === 'open__test_simple_text'));
    assert(!tools.some(tool => tool.name.startsWith('sealed__')));
  },
  async 'a client that signs an assertion is let in'() {
    const { publicKey, privateKey } = await generateKeyPair('ES256');
    const registration = {
      token_endpoint_auth_method: 'private_key_jwt',
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
      jwks: { keys: [{ ...(await exportJWK(publicKey)), kid: 'k', alg: 'ES256', use: 'sig' }] },
    };
    const registered = await fetch(`${ISSUER}/reg`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(registration),
    });
    const { client_id } = await registered.json();
    const signing = new SignJWT({ jti: randomUUID() }).setProtectedHeader({ alg: 'ES256', kid: 'k' });
    signing.setIssuer(client_id).setSubject(client_id).setAudience(ISSUER).setIssuedAt().setExpirationTime('1m');
    const { access_token } = await form(ISSUER, {
      grant_type: 'client_credentials',
      client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
      client_assertion: await signing.sign(privateKey),
      client_id,
      resource: WARDGATE_URL,
      scope: 'mcp',
    });
    // The token has no role, so the caller sees no tools.
    assert.deepEqual(await taken(WARDGATE_URL, access_token), []);
  },
  async 'a token that was exchanged for another resource is good there alone'() {
    const { access_token } = await form(ISSUER, {
      ...MACHINE,
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      subject_token: await machine(WARDGATE_URL),
      resource: route,
    });
    await taken(route, access_token);
    await refused(WARDGATE_URL, access_token, 'audience');
  },
  async 'a token is good at the path it names and below, and nowhere else'() {
    const toolset = `${WARDGATE_URL}/near`;
    const tokens = {};
    for (const url of [WARDGATE_URL, toolset, route]) tokens[url] = await machine(url);
    for (const [resource, token] of Object.entries(tokens)) {
      for (const url of Object.keys(tokens)) {
        if (resource === url || resource === WARDGATE_URL) await taken(url, token);
        else await refused(url, token, 'audience');
      }
    }
  },
  async 'a token for somebody else is refused'() {
    for (const resource of ['https://other.example/mcp', `${WARDGATE_URL}/`, new URL(WARDGATE_URL).origin]) {
      await refused(WARDGATE_URL, await machine(resource), 'audience');
    }
  },
  async 'a token of a server that nobody trusts is refused'() {
    await refused(WARDGATE_URL, await machine(WARDGATE_URL, { issuer: STRANGER }), 'issuer');
  },
  async 'a token that is signed by nobody, or by the public key, is refused'() {
    const [header, payload, signature] = (await machine(WARDGATE_URL)).split('.');
    const { keys } = await (await fetch(`${ISSUER}/jwks`)).json();
    const pem = createPublicKey({ key: keys[0], format: 'jwk' }).export({ type: 'spki', format: 'pem' });
    const claims = JSON.parse(Buffer.from(payload, 'base64url'));
    const { kid } = JSON.parse(Buffer.from(header, 'base64url'));
    const confused = await new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid }).sign(Buffer.from(pem));
    await refused(WARDGATE_URL, confused, 'alg');
    for (const last of ['', signature]) {
      await refused(WARDGATE_URL, `${base64({ alg: 'none', kid })}.${payload}.${last}`, 'alg');
    }
    await refused(WARDGATE_URL, `${header}.${base64({ ...claims, roles: ['Admin'] })}.${signature}`, 'signature');
  },
  async 'what says who somebody is, is no access token'() {
    const { access_token, id_token } = await person('dana', 'openid mcp');
    await refused(WARDGATE_URL, id_token, 'audience');
    await taken(WARDGATE_URL, access_token);
  },
  async 'a token that has ended is refused, though it was good before'() {
    const token = await machine(WARDGATE_URL, { issuer: BRIEF });
    await taken(WARDGATE_URL, token);
    const deadline = Date.now() + 20_000;
    while ((await ask(WARDGATE_URL, token)).status === 200) {
      assert(Date.now() < deadline, 'it never ends');
      await pause(100);
    }
    await refused(WARDGATE_URL, token, 'expired');
  },
  async 'a token without the scope that everything needs is told of it'() {
    const { access_token } = await person('dana', 'openid records');
    const { status, challenge } = await ask(WARDGATE_URL, access_token);
    assert.equal(status, 403);
    assert(challenge.includes('error="insufficient_scope", scope="mcp"'), challenge);
  },
  async 'a call that needs more says all of it, and runs with a scope that includes it'() {
    const calls = [
      [WARDGATE_URL, 'vault__test_simple_text'],
      [`${WARDGATE_URL}/upstream/vault`, 'test_simple_text'],
    ];
    for (const [url, name] of calls) {
      const lacking = await ask(url, await machine(WARDGATE_URL), 'tools/call', { name });
      assert.equal(lacking.status, 403, JSON.stringify(lacking.body));
      assert(lacking.challenge.includes('scope="mcp records"'), lacking.challenge);
      assert(lacking.challenge.includes(`resource/mcp${url.slice(WARDGATE_URL.length)}"`), lacking.challenge);
      const { body } = await ask(url, await machine(WARDGATE_URL, { scope: 'everything' }), 'tools/call', { name });
      assert.equal(body.result.content[0].type, 'text', JSON.stringify(body));
    }
  },
  async 'what nobody may see asks for no scope'() {
    const token = await machine(WARDGATE_URL);
    const words = [];
    for (const name of ['sealed__test_simple_text', 'sealed__test_nothing_here']) {
      const { status, body } = await ask(WARDGATE_URL, token, 'tools/call', { name });
      assert.equal(status, 200);
      words.push(body.error.message.replace(name, ''));
    }
    assert.equal(words[0], words[1]);
    const hidden = await ask(`${WARDGATE_URL}/upstream/sealed`, token);
    const unknown = await ask(`${WARDGATE_URL}/upstream/nothing`, token);
    assert.deepEqual([hidden.status, hidden.body], [404, unknown.body]);
  },
  async 'an older client is led to the metadata of the server'() {
    const response = await fetch(new URL('/.well-known/oauth-authorization-server', WARDGATE_URL));
    assert.equal((await response.json()).issuer, ISSUER);
  },
};

for (const [promise, check] of Object.entries(CHECKS)) {
  try {
    await check();
    console.log(`ok    tokens: ${promise}`);
  } catch (error) {
    process.exitCode = 1;
    console.log(`FAIL  tokens: ${promise}: ${error.message}`.replaceAll('\n', ' '));
  }
}
