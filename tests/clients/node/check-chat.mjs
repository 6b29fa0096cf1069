// Tests POST /api/chat/message/ with a scripted model provider, as a web page uses it.
//
// Reads WARDGATE_URL, LLM_BASE_URL and the tokens DOCTOR, NURSE and BILLING from the environment. Prints one line per
// check. The exit code is not 0 if a check failed.

import assert from 'node:assert/strict';
import process from 'node:process';
import { randomUUID } from 'node:crypto';

import { report } from './report.mjs';

const { WARDGATE_URL, LLM_BASE_URL, DOCTOR, BILLING } = process.env;
const edge = new URL('/', WARDGATE_URL);
const CHECK_MS = 30_000;

const post = (path, token, body, options = {}) =>
  fetch(new URL(path, edge), {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }), ...options.headers },
    body: JSON.stringify(body),
    signal: options.signal ?? AbortSignal.timeout(CHECK_MS),
  });

// The events of a response, one JSON object per line. Blank lines only keep the connection alive.
async function* events(response) {
  assert.equal(response.status, 200, await (response.ok ? '' : response.text()));
  let rest = '';
  for await (const bytes of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + bytes).split('\n');
    rest = lines.pop();
    for (const line of lines) if (line.trim()) yield JSON.parse(line);
  }
  assert.equal(rest, '', 'the last line has no end');
}

async function all(response) {
  const seen = [];
  for await (const event of events(response)) {
    assert.match(event.timestamp, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    seen.push(event);
  }
  assert.equal(seen.at(-1)?.type, 'done', JSON.stringify(seen));
  return seen;
}

const chat = async (token, message, more = {}) =>
  all(await post('/api/chat/message/', token, { message, model: 'clinic', ...more }));
const of = (seen, type) => seen.filter(event => event.type === type);
const text = seen => of(seen, 'token').map(event => event.text).join('');
const one = (seen, type) => {
  assert.equal(of(seen, type).length, 1, JSON.stringify(seen));
  return of(seen, type)[0];
};
const recalled = async (token, conversation_id) => {
  const response = await post('/message', token, {
    jsonrpc: '2.0', id: 1, method: 'memory/get_context', params: { conversation_id },
  });
  const { result, error } = await response.json();
  assert(result, JSON.stringify(error));
  return result.messages;
};

// The requests to the provider, newest last.
const asked = async () => {
  const journal = await (await fetch(new URL('/__aimock/journal', LLM_BASE_URL))).json();
  return journal.map(entry => entry.body);
};

const STORIES = [
  ['Tell me about patient NUGWI', 'get_patient_overview', 'ward W2'],
  ["Show me NUGWI's medical records", 'get_patient_records', 'Lisinopril 10mg daily'],
  ['When was NUGWI admitted?', 'get_patient_admissions', 'admissions of NUGWI'],
  ['What appointments does NUGWI have?', 'get_patient_appointments', 'appointments of NUGWI'],
];

const CHECKS = [
  ...STORIES.map(([question, tool, words]) => [
    `"${question}" asks ${tool} and answers from what it gave`,
    async () => {
      const seen = await chat(DOCTOR, question);
      const call = one(seen, 'tool_call');
      const result = one(seen, 'tool_result');
      assert.equal(call.tool_name, tool);
      assert.deepEqual(Object.keys(result).sort(), ['call_id', 'data', 'error', 'id', 'success', 'timestamp', 'tool_name', 'type']);
      assert.equal(result.tool_name, tool);
      assert.equal(result.call_id, call.call_id);
      assert.equal(result.success, true);
      assert.equal(result.error, null);
      assert(result.data, JSON.stringify(result));
      assert(seen.indexOf(call) < seen.indexOf(result));
      assert(text(seen).includes(words), text(seen));
      assert(!text(seen).includes('[Tool Result'), text(seen));
    },
  ]),
  [
    'a patient that does not exist is an error result, and the stream goes on',
    async () => {
      const seen = await chat(DOCTOR, 'Tell me about patient NOGWI');
      const result = one(seen, 'tool_result');
      assert.equal(result.success, false);
      assert.equal(result.data, null);
      assert.match(result.error, /Invalid patient_id/);
      assert.match(text(seen), /no patient NOGWI/);
    },
  ],
  [
    'two calls of one answer both run',
    async () => {
      const seen = await chat(DOCTOR, 'Records and appointments of NUGWI');
      assert.equal(of(seen, 'tool_call').length, 2);
      assert.deepEqual(of(seen, 'tool_result').map(result => result.success), [true, true]);
      assert.match(text(seen), /Both were read/);
    },
  ],
  [
    'the model is offered what its person may call, and nothing else',
    async () => {
      const question = `hello, ${randomUUID()}`;
      await chat(BILLING, question);
      const request = (await asked()).findLast(body => JSON.stringify(body.messages).includes(question));
      assert.deepEqual(request.tools.map(tool => tool.function.name), ['get_patient_overview']);
    },
  ],
  [
    'a tool that is not offered is refused by name, and the model hears of it',
    async () => {
      const seen = await chat(DOCTOR, 'Use a tool that is not there');
      assert(seen.some(event => JSON.stringify(event).includes('drop_all_tables')), JSON.stringify(seen));
      assert(!of(seen, 'tool_result').some(result => result.success));
      assert.match(text(seen), /cannot do that/);
    },
  ],
  [
    'arguments that do not fit come back to the model, which mends them',
    async () => {
      const seen = await chat(DOCTOR, 'Records of nobody in particular');
      assert.deepEqual(of(seen, 'tool_result').map(result => result.success), [false, true]);
      assert.match(text(seen), /worked in the end/);
    },
  ],
  [
    'a model that goes round in circles is stopped, answers once more, and the stream says which limit it was',
    async () => {
      const seen = await chat(DOCTOR, 'Go round in circles');
      assert(of(seen, 'tool_result').length <= 4);
      assert.match(text(seen), /I stop here/);
      assert(seen.at(-1).cap, JSON.stringify(seen.at(-1)));
    },
  ],
  [
    'an answer that breaks off ends in an error, and the conversation stays usable',
    async () => {
      const conversation_id = randomUUID();
      const seen = await chat(DOCTOR, 'Break off', { conversation_id });
      one(seen, 'error');
      const after = await chat(DOCTOR, 'hello', { conversation_id });
      assert.match(text(after), /Hello there/);
      assert.deepEqual((await recalled(DOCTOR, conversation_id)).map(message => message.content), ['hello', 'Hello there.']);
    },
  ],
  [
    'a call that breaks off never runs',
    async () => {
      const seen = await chat(DOCTOR, 'Break off in a call');
      one(seen, 'error');
      assert.equal(of(seen, 'tool_result').length, 0);
    },
  ],
  [
    'a provider that fails ends the stream well-formed',
    async () => {
      const seen = await chat(DOCTOR, 'Fail');
      assert.equal(one(seen, 'error').kind.length > 0, true);
    },
  ],
  [
    'an unknown model is an error, and nothing is kept',
    async () => {
      const seen = await chat(DOCTOR, 'hello', { model: 'nobody' });
      assert.equal(one(seen, 'error').kind, 'unknown_model');
      assert.equal(seen.at(-1).conversation_id, null);
    },
  ],
  [
    'without a token there is no answer',
    async () => {
      const response = await post('/api/chat/message/', undefined, { message: 'hello' });
      assert.equal(response.status, 401);
      assert.match(response.headers.get('www-authenticate'), /Bearer/);
    },
  ],
  [
    'a conversation is remembered, in order, with what the tools gave',
    async () => {
      const conversation_id = randomUUID();
      await chat(DOCTOR, "Show me NUGWI's medical records", { conversation_id });
      await chat(DOCTOR, 'hello', { conversation_id });
      const messages = await recalled(DOCTOR, conversation_id);
      assert.deepEqual(messages.map(message => message.role), ['user', 'assistant', 'tool', 'assistant', 'user', 'assistant']);
      assert.equal(messages[2].trust, 'data');
      const request = (await asked()).at(-1);
      assert(JSON.stringify(request.messages).includes('Lisinopril'));
    },
  ],
  [
    'the same message sent again is the same answer, and the model is not asked again',
    async () => {
      const again = { conversation_id: randomUUID(), message_id: randomUUID() };
      const first = await chat(DOCTOR, "Show me NUGWI's medical records", again);
      const before = (await asked()).length;
      const second = await chat(DOCTOR, "Show me NUGWI's medical records", again);
      assert.equal((await asked()).length, before);
      assert.equal(text(second), text(first));
      assert.equal((await recalled(DOCTOR, again.conversation_id)).length, 4);
    },
  ],
  [
    'a model that writes its calls as text is served alike',
    async () => {
      const seen = await chat(DOCTOR, "Show me NUGWI's medical records", { model: 'clinic-text' });
      assert.equal(one(seen, 'tool_result').success, true);
      assert.match(text(seen), /I will look it up/);
      assert.match(text(seen), /Lisinopril 10mg daily/);
      assert(!/TOOL:|PARAMETERS:/.test(text(seen)), text(seen));
    },
  ],
  [
    'a call that needs a person waits for them, and runs once approved',
    async () => {
      const seen = await chat(DOCTOR, 'Read with care', { model: 'careful' });
      const pending = one(seen, 'approval_required');
      assert.equal(pending.tool_name, 'get_medical_records');
      // The exact arguments of the pending call, including defaults.
      assert.deepEqual(pending.arguments, { patient_id: 'NUGWI', limit: 100 });
      assert.equal(of(seen, 'tool_result').length, 0);
      const path = `/api/chat/approvals/${encodeURIComponent(pending.approval_id)}`;
      const stranger = await post(path, BILLING, { decision: 'approve' });
      const strange = await stranger.text();
      assert(!strange.includes('Lisinopril') && (!stranger.ok || strange.includes('"error"')), strange);
      const after = await all(await post(path, DOCTOR, { decision: 'approve' }));
      assert.equal(one(after, 'tool_result').success, true);
      assert.match(text(after), /Approved: Lisinopril/);
    },
  ],
  [
    'a call that a person refuses does not run',
    async () => {
      const seen = await chat(DOCTOR, 'Read with care', { model: 'careful' });
      const { approval_id } = one(seen, 'approval_required');
      const path = `/api/chat/approvals/${encodeURIComponent(approval_id)}`;
      const after = await all(await post(path, DOCTOR, { decision: 'refuse' }));
      assert(!of(after, 'tool_result').some(result => result.success), JSON.stringify(after));
      assert.match(text(after), /not approved/);
    },
  ],
  [
    'tokens come while the model speaks, and hanging up ends the turn',
    async () => {
      const conversation_id = randomUUID();
      const hangUp = new AbortController();
      const response = await post('/api/chat/message/', DOCTOR, { message: 'Count slowly', model: 'clinic', conversation_id }, { signal: hangUp.signal });
      const stream = events(response);
      let words = 0;
      for await (const event of stream) if (event.type === 'token' && ++words === 3) break;
      hangUp.abort();
      const after = await chat(DOCTOR, 'hello', { conversation_id });
      assert.match(text(after), /Hello there/);
      assert.deepEqual((await recalled(DOCTOR, conversation_id)).map(message => message.content), ['hello', 'Hello there.']);
    },
  ],
];

await report('chat: ', CHECKS);
