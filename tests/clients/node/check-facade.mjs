// Tests `@modelcontextprotocol/client` with a gateway that acts as authorization server in front of a real one
// (`oidc-provider`) at which only the gateway is registered. The client knows only the URL of the gateway. Covers
// registration, the consent page of the gateway, the pages of the provider, tokens, their renewal, and additional scopes.
//
// Reads WARDGATE_URL and BRIEF (the provider) from the environment. Prints one line per check. The exit code is not 0 if a
// check failed.

import assert from 'node:assert/strict';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { connect } from './browser.mjs';
import { report } from './report.mjs';
import { CALLBACK, SignInProvider, afterSignIn } from './sign-in.mjs';

const { WARDGATE_URL, BRIEF } = process.env;
const TOOL = 'open__test_simple_text';
const TEXT = 'This is a simple text response for testing.';
const PAGES = ['Connect a program', 'One moment', 'Sign-in', 'Authorize'];

async function signIn(url) {
  assert.equal(url.origin, new URL(WARDGATE_URL).origin, 'the client never hears of the provider');
  const { url: back, headings } = await connect(url, 'dana', next => next.href.startsWith(CALLBACK));
  assert.deepEqual(headings, PAGES);
  return back;
}

async function signedIn() {
  const provider = new SignInProvider(signIn);
  let client, transport;
  const attempt = action => afterSignIn(() => transport, provider, action);
  await attempt(async () => {
    client = new Client({ name: 'wardgate-check', version: '1' });
    transport = new StreamableHTTPClientTransport(new URL(WARDGATE_URL), { authProvider: provider });
    await client.connect(transport);
  });
  const call = name => attempt(() => client.callTool({ name, arguments: {} }));
  return { provider, call, close: () => client.close() };
}

const claims = token => JSON.parse(Buffer.from(token.split('.')[1], 'base64url'));

await report('facade, ', [
  [
    'from a 401 by way of registration, consent and sign-in to a call with the provider\'s own token',
    async () => {
      const { provider, call, close } = await signedIn();
      assert.equal((await call(TOOL)).content[0].text, TEXT);
      assert.equal(provider.asked.length, 1);
      const { iss, sub, aud } = claims(provider.kept.access_token);
      assert.deepEqual({ iss, sub, aud }, { iss: BRIEF, sub: 'dana', aud: 'https://mcp.example/' });
      await close();
    },
  ],
  [
    'tokens that end soon are renewed, and nobody is asked',
    async () => {
      const { provider, call, close } = await signedIn();
      const tokens = new Set();
      const deadline = Date.now() + 30_000;
      while (tokens.size < 3) {
        assert(Date.now() < deadline, 'they are not renewed');
        assert.equal((await call(TOOL)).content[0].text, TEXT);
        tokens.add(provider.kept.access_token);
        await pause(500);
      }
      assert.equal(provider.asked.length, 1);
      await close();
    },
  ],
  [
    'a call that needs more scope asks its user again',
    async () => {
      const { provider, call, close } = await signedIn();
      assert.equal((await call('vault__test_simple_text')).content[0].text, TEXT);
      assert.equal(provider.asked.length, 2);
      assert(provider.asked[1].get('scope').split(' ').includes('records'));
      await close();
    },
  ],
]);
