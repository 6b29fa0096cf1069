// Renames tools for the suite, which uses their own names, while the gateway adds a prefix for each upstream.
// Adds a bearer token like proxy.mjs, prefixes names and maps URIs in requests, and does the reverse in responses. It changes
// nothing else, so a failing scenario is the fault of the gateway.
// Run as: TOKEN=… node shim.mjs http://HOST:PORT/PATH SOURCE. Prints `ready` and its own URL, and serves until killed.

import http from 'node:http';
import process from 'node:process';

const gateway = new URL(process.argv[2]);
const source = process.argv[3];
const PREFIX = `${source}__`;
const SCHEME = `${source}+`;

const added = start => text => (typeof text === 'string' ? start + text : text);
const taken = start => text => (typeof text === 'string' && text.startsWith(start) ? text.slice(start.length) : text);
const names = { inward: added(PREFIX), outward: taken(PREFIX) };
const uris = { inward: added(SCHEME), outward: taken(SCHEME) };

// Changes a member if it exists.
function edit(object, member, change) {
  if (object && typeof object === 'object' && member in object) object[member] = change(object[member]);
}

function each(list, visit) {
  if (Array.isArray(list)) list.forEach(visit);
}

const NAMED = { 'tools/call': ['name', names], 'prompts/get': ['name', names] };
for (const method of ['resources/read', 'resources/subscribe', 'resources/unsubscribe']) NAMED[method] = ['uri', uris];

function inward(message) {
  const { method, params } = message;
  const named = NAMED[method];
  if (named) edit(params, named[0], named[1].inward);
  if (method === 'completion/complete') {
    edit(params?.ref, 'name', names.inward);
    edit(params?.ref, 'uri', uris.inward);
  }
  if (method === 'subscriptions/listen') listened(params, uris.inward);
}

function listened(params, change) {
  edit(params?.notifications, 'resourceSubscriptions', list => (Array.isArray(list) ? list.map(change) : list));
}

function outward(message) {
  const { result, error, params } = message;
  if (message.method === 'notifications/resources/updated') edit(params, 'uri', uris.outward);
  if (message.method === 'notifications/subscriptions/acknowledged') listened(params, uris.outward);
  each(result?.tools, tool => edit(tool, 'name', names.outward));
  each(result?.prompts, prompt => edit(prompt, 'name', names.outward));
  each(result?.resources, resource => edit(resource, 'uri', uris.outward));
  each(result?.resourceTemplates, template => edit(template, 'uriTemplate', uris.outward));
  each(result?.contents, contents => edit(contents, 'uri', uris.outward));
  each(result?.content, block);
  each(result?.messages, said => block(said?.content));
  edit(error?.data, 'uri', uris.outward);
}

function block(content) {
  if (content?.type === 'resource_link') edit(content, 'uri', uris.outward);
  if (content?.type === 'resource') edit(content.resource, 'uri', uris.outward);
}

// The changed text of one or several messages. Other text stays unchanged.
function changed(text, change) {
  let parsed;
  try {
    parsed = JSON.parse(text);
  } catch {
    return text;
  }
  if (parsed === null || typeof parsed !== 'object') return text;
  for (const message of [parsed].flat()) if (message && typeof message === 'object') change(message);
  return JSON.stringify(parsed);
}

// The value of `Mcp-Name` for a changed message. A wrong value stays wrong.
function named(value, body) {
  let method;
  try {
    method = JSON.parse(body).method;
  } catch {
    return value;
  }
  const change = NAMED[method]?.[1].inward;
  if (!change) return value;
  const encoded = /^=\?base64\?(.*)\?=$/.exec(value)?.[1];
  if (encoded === undefined) return change(value);
  const decoded = Buffer.from(encoded, 'base64');
  if (decoded.toString('base64') !== encoded) return value;
  return `=?base64?${Buffer.from(change(decoded.toString())).toString('base64')}?=`;
}

// The received header lines, with the token, and with the length and the name of the changed body.
function headers(raw, before, body) {
  const lines = ['Authorization', `Bearer ${process.env.TOKEN}`];
  for (let at = 0; at < raw.length; at += 2) {
    const [name, value] = [raw[at], raw[at + 1]];
    if (/^(content-length|transfer-encoding|connection)$/i.test(name)) continue;
    lines.push(name, /^mcp-name$/i.test(name) ? named(value, before) : value);
  }
  if (body.length > 0) lines.push('Content-Length', String(body.length));
  return lines;
}

// Events are forwarded one by one. Only the text after `data:` is a message.
function events(from, to) {
  let pending = '';
  from.setEncoding('utf8');
  from.on('data', part => {
    const lines = (pending + part).split('\n');
    pending = lines.pop();
    const told = lines.map(line => (line.startsWith('data:') ? `data: ${changed(line.slice(5).trim(), outward)}` : line));
    if (told.length > 0) to.write(`${told.join('\n')}\n`);
  });
  from.on('end', () => to.end(pending));
}

async function whole(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

const server = http.createServer(async (request, response) => {
  const before = await whole(request);
  const body = Buffer.from(changed(before.toString(), inward));
  const { method, url, rawHeaders } = request;
  const options = {
    host: gateway.hostname,
    port: gateway.port,
    method,
    path: url,
    headers: headers(rawHeaders, before.toString(), body),
    setHost: false,
  };
  const asked = http.request(options, async answer => {
    const kept = [];
    for (let at = 0; at < answer.rawHeaders.length; at += 2) {
      const [name, value] = [answer.rawHeaders[at], answer.rawHeaders[at + 1]];
      if (!/^(content-length|transfer-encoding|connection|keep-alive)$/i.test(name)) kept.push(name, value);
    }
    response.writeHead(answer.statusCode, kept);
    if (answer.headers['content-type']?.startsWith('text/event-stream')) {
      response.flushHeaders();
      events(answer, response);
    } else {
      response.end(changed((await whole(answer)).toString(), outward));
    }
    answer.on('error', () => response.destroy());
  });
  asked.on('error', () => response.destroy());
  // If the client disconnects, the connection to the gateway is closed too.
  response.on('close', () => asked.destroy());
  asked.end(body);
});

server.listen(0, '127.0.0.1', () => console.log(`ready http://127.0.0.1:${server.address().port}`));
