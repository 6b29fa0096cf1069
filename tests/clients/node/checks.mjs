// The checks of every JavaScript client with a running gateway. check-*.mjs define how each client connects.
//
// Reads WARDGATE (the binary), WARDGATE_URL and the tokens DOCTOR, NURSE and BILLING from the environment.
// Prints one line per check. The exit code is not 0 if a check failed.

import assert from 'node:assert/strict';
import process from 'node:process';

const { WARDGATE, WARDGATE_URL, DOCTOR, NURSE, BILLING } = process.env;
for (const [name, value] of Object.entries({ WARDGATE, WARDGATE_URL, DOCTOR, NURSE, BILLING })) {
  assert(value, `set ${name}`);
}
export const url = new URL(WARDGATE_URL);
// The endpoint of the transport of 2024-11-05.
export const sse = new URL('/sse', url);
// How a client starts `wardgate stdio`.
export const bridge = token => ({
  command: WARDGATE,
  args: ['stdio', '--url', WARDGATE_URL],
  env: { WARDGATE_TOKEN: token },
  stderr: 'ignore',
});
export const clientInfo = { name: 'wardgate-check', version: '1' };

const CHECK_MS = 30_000;
const INVALID_PARAMS = -32602;
const RESOURCE_NOT_FOUND = -32002;
const TRIAGE = 'guide://triage';
const TOOLS = ['get_admissions', 'get_appointments', 'get_medical_records', 'get_patient_overview', 'get_shifts'];
const TOOL = 'get_medical_records';
const RECORDS = [
  {
    id: 1,
    patient_id: 'NUGWI',
    created_at: '2025-11-10T10:00:00Z',
    updated_at: '2025-11-10T10:00:00Z',
    record_type: 'Diagnosis',
    content: 'Hypertension',
    note: 'Stage 2, requires management',
    assigned_doctor: 'dr.yenji',
  },
  {
    id: 2,
    patient_id: 'NUGWI',
    created_at: '2025-11-09T14:30:00Z',
    updated_at: '2025-11-09T14:30:00Z',
    record_type: 'Treatment',
    content: 'Lisinopril 10mg daily',
    note: 'Well tolerated, monitor BP',
    assigned_doctor: 'dr.yenji',
  },
];

const text = result => {
  assert.deepEqual(result.content.map(block => block.type), ['text']);
  return result.content[0].text;
};
const call = (client, name, args) => client.callTool({ name, arguments: args });
const records = (client, patient_id = 'NUGWI') => call(client, TOOL, { patient_id });

// Makes calls as a doctor, without the tested client.
async function outside(method, params) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { authorization: `Bearer ${DOCTOR}`, 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  });
  const { result } = await response.json();
  assert(result, `${method}: ${response.status}`);
}

// The protocol error of a call.
async function refusal(calling) {
  const result = await calling.then(
    value => ({ value }),
    error => ({ error }),
  );
  assert(result.error, `not refused: ${JSON.stringify(result.value)}`);
  return result.error;
}

// Each entry: the promise, the check, and the eras if it does not apply to all.
const CHECKS = [
  [
    'they agree on the version, and the server says who it is',
    async ({ era, as }) => {
      const client = await as(DOCTOR);
      assert.equal(era.negotiated(client), era.version);
      assert.equal(client.getServerVersion().name, 'wardgate');
      assert(client.getServerCapabilities().tools);
      assert(client.getInstructions());
    },
  ],
  [
    'a doctor lists the tools of a doctor, with their schemas',
    async ({ as }) => {
      const { tools, nextCursor } = await (await as(DOCTOR)).listTools();
      assert.deepEqual(tools.map(tool => tool.name).sort(), TOOLS);
      assert.deepEqual(tools.find(tool => tool.name === TOOL).inputSchema.required, ['patient_id']);
      assert.equal(nextCursor, undefined);
    },
  ],
  [
    'a doctor reads the records of their patient',
    async ({ era, as }) => {
      const result = await records(await as(DOCTOR));
      assert.equal(result.isError, false);
      assert.deepEqual(JSON.parse(text(result)), { data: RECORDS });
      const structured = era.version < '2025-06-18' ? undefined : { data: RECORDS };
      assert.deepEqual(result.structuredContent, structured);
    },
  ],
  [
    'each call has an id and a receipt of its own',
    async ({ as }) => {
      const client = await as(DOCTOR);
      const [first, second] = [(await records(client))._meta, (await records(client))._meta];
      assert.notEqual(first['dev.wardgate/callId'], second['dev.wardgate/callId']);
      const [one, two] = [first, second].map(meta => meta['dev.wardgate/receipt'].leafHash);
      assert.match(one, /^[0-9a-f]{64}$/);
      assert.notEqual(one, two);
    },
  ],
  [
    'a nurse reads the same records with identifiers masked',
    async ({ as }) => {
      const result = await records(await as(NURSE));
      assert.equal(result.isError, false);
      const masked = JSON.parse(text(result)).data;
      assert.equal(masked.length, RECORDS.length);
      for (const [index, clear] of RECORDS.entries()) {
        const { patient_id, assigned_doctor } = clear;
        assert(masked[index].patient_id && masked[index].assigned_doctor);
        assert.deepEqual({ ...masked[index], patient_id, assigned_doctor }, clear);
      }
      const whole = JSON.stringify(result);
      assert(!whole.includes('NUGWI') && !whole.includes('dr.yenji'), whole);
    },
  ],
  [
    'billing does not see the tool, and is refused as if there were none',
    async ({ as }) => {
      const client = await as(BILLING);
      assert.deepEqual((await client.listTools()).tools.map(tool => tool.name), ['get_patient_overview']);
      const hidden = await refusal(records(client));
      const unknown = await refusal(call(client, 'no_such_tool', { patient_id: 'NUGWI' }));
      assert.equal(hidden.code, INVALID_PARAMS);
      assert.equal(unknown.code, INVALID_PARAMS);
      assert.equal(hidden.message.replace(TOOL, 'no_such_tool'), unknown.message);
    },
  ],
  [
    'a name that no header can carry as it is, is still just an unknown tool',
    async ({ as }) => {
      const client = await as(DOCTOR);
      for (const name of ['Blutdruck prüfen', ' padded ', '=?base64?eA==?=']) {
        const error = await refusal(call(client, name, {}));
        assert.equal(error.code, INVALID_PARAMS);
        assert(error.message.includes(name), error.message);
      }
    },
  ],
  [
    'wrong arguments end in a result that names what to fix',
    async ({ as }) => {
      const client = await as(DOCTOR);
      const wrong = [[{ patient_id: 'nugwi' }, 'patient_id'], [{ patient_id: 'NUGWI', limit: 0 }, 'limit'], [{}, 'patient_id']];
      for (const [args, field] of wrong) {
        const result = await call(client, TOOL, args);
        assert.equal(result.isError, true);
        assert(text(result).includes(field), text(result));
      }
      const unknown = await records(client, 'NOGWI');
      assert.equal(unknown.isError, true);
      assert.equal(text(unknown), 'Invalid patient_id: NOGWI');
    },
  ],
  [
    'a nurse has the guides and a prompt: listed, completed, filled in, read',
    async ({ as }) => {
      const client = await as(NURSE);
      const { prompts } = await client.listPrompts();
      assert.deepEqual(prompts.map(prompt => prompt.name), ['summarise_chart']);
      const [required] = prompts[0].arguments.filter(argument => argument.required);
      assert.equal(required.name, 'patient_id');
      const ref = { type: 'ref/prompt', name: 'summarise_chart' };
      const { completion } = await client.complete({ ref, argument: { name: 'tone', value: 'p' } });
      assert.deepEqual(completion.values, ['plain']);
      const prompt = await client.getPrompt({ name: 'summarise_chart', arguments: { patient_id: 'NUGWI', tone: 'plain' } });
      assert(prompt.messages[0].content.text.includes('in plain language'), JSON.stringify(prompt));
      const { resources } = await client.listResources();
      assert(resources.some(resource => resource.uri === TRIAGE), JSON.stringify(resources));
      const { resourceTemplates } = await client.listResourceTemplates();
      assert(resourceTemplates.some(template => template.uriTemplate === 'guide://ward/{ward}'));
      for (const [uri, words] of [[TRIAGE, '| orange |'], ['guide://ward/W2', '# Ward W2']]) {
        const { contents } = await client.readResource({ uri });
        assert.equal(contents[0].uri, uri);
        assert(contents[0].text.includes(words), contents[0].text);
      }
    },
  ],
  [
    'billing has none of them, and is refused as if there were none',
    async ({ era, as }) => {
      const client = await as(BILLING);
      assert.deepEqual((await client.listPrompts()).prompts, []);
      const prompt = await refusal(client.getPrompt({ name: 'summarise_chart', arguments: { patient_id: 'NUGWI' } }));
      assert.equal(prompt.code, INVALID_PARAMS);
      const codes = [];
      for (const uri of [TRIAGE, 'guide://nothing']) {
        codes.push((await refusal(client.readResource({ uri }))).code);
      }
      assert.equal(codes[0], codes[1]);
      // Some clients report the older error code as the newer one.
      assert([INVALID_PARAMS, ...(era.modern ? [] : [RESOURCE_NOT_FOUND])].includes(codes[0]), codes[0]);
    },
  ],
  [
    'without a token, or with a forged one, the client learns that it is unauthorized',
    async ({ era }) => {
      const forged = `${DOCTOR.slice(0, DOCTOR.lastIndexOf('.'))}${BILLING.slice(BILLING.lastIndexOf('.'))}`;
      for (const token of ['', forged]) {
        const { client, transport } = era.open(token, fetch);
        const error = await refusal(client.connect(transport));
        assert(era.isUnauthorized(error), `${error.name}: ${error.message}`);
      }
    },
  ],
  [
    'the challenge of a 401 leads the client to the metadata of this resource',
    async ({ era }) => {
      const challenge = await fetch(url, { method: 'POST' });
      assert.equal(challenge.status, 401);
      const { resourceMetadataUrl } = era.extractWWWAuthenticateParams(challenge);
      const metadata = await era.discoverOAuthProtectedResourceMetadata(url, { resourceMetadataUrl });
      assert.equal(metadata.resource, url.href);
      assert(metadata.authorization_servers.length > 0);
    },
    // The error is the same before a version is negotiated.
    (era, eras) => era === eras[0],
  ],
  [
    'an older client opens its stream, and calls beside it',
    async ({ as, streams, quiet }) => {
      const client = await as(DOCTOR);
      await quiet();
      assert.deepEqual(streams, [200]);
      assert.equal((await records(client)).isError, false);
    },
    era => !era.modern && era.transport === 'http',
  ],
  [
    'a client hears when one of its conversations changes',
    async ({ era, as, quiet }) => {
      const client = await as(DOCTOR);
      const id = `heard-${crypto.randomUUID()}`;
      const uri = `memory://conversation/${id}`;
      await outside('memory/get_or_create', { conversation_id: id });
      const heard = new Promise(tell => era.whenUpdated(client, ({ params }) => tell(params.uri)));
      const filter = { resourceSubscriptions: [uri] };
      const subscription = era.modern && (await client.listen(filter));
      if (!era.modern) {
        await quiet();
        await client.subscribeResource({ uri });
      }
      await outside('memory/add_message', { conversation_id: id, role: 'user', content: 'hello' });
      assert.equal(await heard, uri);
      await (subscription ? subscription.close() : client.unsubscribeResource({ uri }));
    },
  ],
  [
    'ping is answered',
    async ({ as }) => assert.deepEqual(await (await as(DOCTOR)).ping(), {}),
    era => !era.modern,
  ],
];

function within(milliseconds, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

// Connects with a token for one check. `close` closes the connections and returns the errors that the clients
// reported. `streams` contains the HTTP statuses of the clients' GET requests.
function connections(era) {
  const clients = [];
  const complaints = [];
  const streams = [];
  const requests = [];
  const watched = (target, init) => {
    const request = fetch(target, init);
    requests.push(request);
    if (init.method === 'GET') request.then(response => streams.push(response.status));
    return request;
  };
  // A client opens its stream in the background: wait until it has received the response.
  const quiet = async () => {
    await Promise.allSettled(requests);
    await new Promise(setImmediate);
  };
  return {
    streams,
    quiet,
    async as(token) {
      const { client, transport } = era.open(token, watched);
      client.onerror = error => complaints.push(`${error.name}: ${error.message}`);
      clients.push(client);
      await client.connect(transport);
      return client;
    },
    async close() {
      await quiet();
      await Promise.all(clients.map(client => client.close()));
      return complaints;
    },
  };
}

export async function run(name, eras) {
  for (const era of eras) {
    for (const [promise, check, applies = () => true] of CHECKS) {
      if (!applies(era, eras)) continue;
      const line = `${name}, ${era.transport}, ${era.version} (${era.mode}): ${promise}`;
      const opened = connections(era);
      try {
        await within(CHECK_MS, check({ era, ...opened }));
        assert.deepEqual(await opened.close(), [], 'the client complained');
        console.log(`ok    ${line}`);
      } catch (error) {
        await opened.close();
        process.exitCode = 1;
        console.log(`FAIL  ${line}: ${error.name}: ${error.message}`.replaceAll('\n', ' '));
      }
    }
  }
}
