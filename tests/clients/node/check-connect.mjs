// Tests users who connect a source: the response to a call of `@modelcontextprotocol/client` is a page (elicitation by URL). A
// browser follows it through the sign-in at the gateway's issuer, the consent page of the gateway, and the pages of the
// source's authorization server; both servers are `oidc-provider`. The sources accept only tokens of their server: those of
// `notes` are signed by BRIEF and expire soon, those of `ledger` are introspected at OPAQUE.
//
// Reads WARDGATE_URL, the data directory DATA and the binary WARDGATE of the gateway, the issuers ISSUER and OPAQUE, and the
// sources NOTES_URL and LEDGER_URL from the environment. Prints one line per check. The exit code is not 0 if a check failed.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { connect, tokensOf } from './browser.mjs';
import { report } from './report.mjs';

const { WARDGATE, WARDGATE_URL, DATA, ISSUER, OPAQUE, NOTES_URL, LEDGER_URL } = process.env;
const NOTES = 'who_takes_notes';
const LEDGER = 'who_keeps_the_ledger';
const ERAS = {
  '2026-07-28': { versionNegotiation: { mode: { pin: '2026-07-28' } } },
  '2025-11-25': {},
};
// The pages between a call and its result. The user fills in the form of each.
const SIGN_IN = ['Sign-in', 'Authorize'];
const PAGES = [...SIGN_IN, 'Connect a service', 'One moment', ...SIGN_IN, 'Connected'];

// A client of this user. `answer` handles a page that the user is asked to open, `shown` contains these pages, and `token` is
// the user's token for the gateway.
async function client(who, era, answer) {
  const { access_token: token } = await tokensOf(ISSUER, who, { resource: WARDGATE_URL, scope: 'openid mcp' });
  const shown = [];
  const client = new Client({ name: 'wardgate-check', version: '1' }, { capabilities: { elicitation: { url: {} } }, ...ERAS[era] });
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    assert.equal(params.mode, 'url');
    assert(params.url.startsWith(new URL('/connect/', WARDGATE_URL).href), params.url);
    shown.push(params.url);
    return { action: await answer(params.url) };
  });
  const authProvider = { token: async () => token };
  await client.connect(new StreamableHTTPClientTransport(new URL(WARDGATE_URL), { authProvider }));
  const call = name => client.callTool({ name, arguments: {} });
  return { call, shown, token, close: () => client.close() };
}

// Consents, and checks that all pages were shown.
const allow = who => async url => {
  const { status, headings } = await connect(url, who);
  assert.deepEqual(headings, PAGES);
  assert.equal(status, 200);
  return 'accept';
};
const nobodyIsAsked = () => {
  throw new Error('somebody was asked');
};

const said = async call => {
  const { content, isError } = await call;
  assert(!isError, content[0].text);
  return content[0].text;
};
const seen = async url => (await fetch(new URL('/seen', url))).json();
// Runs `wardgate tools` as the operator Olga.
async function tools(...args) {
  const { access_token: token } = await tokensOf(ISSUER, 'olga', { resource: WARDGATE_URL, scope: 'openid mcp' });
  const env = { ...process.env, WARDGATE_TOKEN: token };
  return execFileSync(WARDGATE, ['tools', ...args, '--data-dir', DATA], { encoding: 'utf8', env });
}

// Whether the token is active at the authorization server of the ledger.
async function isActive(token) {
  const headers = { authorization: `Basic ${btoa('guard:guard-secret')}` };
  const body = new URLSearchParams({ token });
  const response = await fetch(`${OPAQUE}/token/introspection`, { method: 'POST', headers, body });
  return (await response.json()).active;
}

const CHECKS = [];
for (const era of Object.keys(ERAS)) {
  CHECKS.push(
    [
      `${era}: a call leads its caller to the pages, and then goes on in their name`,
      async () => {
        await tools('disconnect', '--user', 'ann', '--source', 'notes');
        const ann = await client('ann', era, allow('ann'));
        assert.equal(await said(ann.call(NOTES)), 'you are ann');
        assert.equal(ann.shown.length, 1);
        assert.equal(await said(ann.call(NOTES)), 'you are ann');
        assert.equal(ann.shown.length, 1, 'once is enough');
        assert(!(await seen(NOTES_URL)).includes(ann.token), 'the source sees tokens of its own server only');
        await ann.close();
      },
    ],
    [
      `${era}: what one person allowed serves nobody else`,
      async () => {
        const before = (await seen(NOTES_URL)).length;
        const ben = await client('ben', era, () => 'decline');
        const { isError } = await ben.call(NOTES);
        assert(isError);
        assert.equal(ben.shown.length, 1);
        await ben.close();
        assert.equal((await seen(NOTES_URL)).length, before, 'the source is not called');
        // The link of one user in the browser of another.
        const other = await client('ben', era, async url => {
          const { status, headings } = await connect(url, 'ann');
          assert.deepEqual(headings, [...SIGN_IN, 'Not connected']);
          assert.equal(status, 403);
          return 'cancel';
        });
        assert((await other.call(NOTES)).isError);
        await other.close();
      },
    ],
  );
}
// The following checks do not depend on the client's version.
const era = '2026-07-28';
CHECKS.push(
  [
    'tokens that end soon are renewed, and nobody is asked',
    async () => {
      const ann = await client('ann', era, nobodyIsAsked);
      const tokens = new Set();
      const deadline = Date.now() + 30_000;
      while (tokens.size < 3) {
        assert(Date.now() < deadline, 'they are not renewed');
        assert.equal(await said(ann.call(NOTES)), 'you are ann');
        tokens.add((await seen(NOTES_URL)).at(-1));
        await pause(500);
      }
      await ann.close();
    },
  ],
  [
    'a client that was made known by hand gets tokens that are good until their person is disconnected',
    async () => {
      let answer = allow('ann');
      const ann = await client('ann', era, url => answer(url));
      assert.equal(await said(ann.call(LEDGER)), 'you are ann');
      const [last] = (await seen(LEDGER_URL)).slice(-1);
      assert.notEqual(last, ann.token);
      assert.equal(await isActive(last), true);
      const listed = (await tools('connections', '--output', 'jsonl')).trim().split('\n').map(line => JSON.parse(line));
      assert(listed.some(({ source, user }) => source === 'ledger' && user === 'ann'), JSON.stringify(listed));
      assert.equal(await tools('disconnect', '--user', 'ann', '--source', 'ledger'), '1 forgotten\n');
      assert.equal(await isActive(last), false, 'its server knows');
      answer = () => 'decline';
      assert((await ann.call(LEDGER)).isError);
      assert.equal(ann.shown.length, 2, 'they are asked anew');
      await ann.close();
    },
  ],
);
await report('connect, ', CHECKS);
