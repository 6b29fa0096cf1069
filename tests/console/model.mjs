// A model provider with OpenAI's chat completions, as far as the check needs one: it asks for a tool, and then says what
// no page may take for markup. Prints `ready` and its base URL, and serves until it is killed.

import http from 'node:http';

const HOSTILE = 'Two records. <img src=x onerror=alert(1)><script>document.title = "owned"</script>';

const server = http.createServer(async (request, response) => {
  let body = '';
  for await (const piece of request) body += piece;
  const { messages } = JSON.parse(body);
  const answered = messages.at(-1).role === 'tool';
  const call = { index: 0, id: 'call-1', type: 'function', function: { name: 'get_patient_records', arguments: '{"patient_id":"NUGWI"}' } };
  const deltas = answered
    ? [...HOSTILE.matchAll(/.{1,12}/g)].map(([text]) => ({ content: text }))
    : [{ tool_calls: [call] }];
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (delta, finish_reason = null) =>
    response.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
  for (const delta of deltas) send(delta);
  send({}, answered ? 'stop' : 'tool_calls');
  response.end('data: [DONE]\n\n');
});
server.listen(0, '127.0.0.1', () => console.log(`ready http://127.0.0.1:${server.address().port}/v1`));
