// A scripted model provider with OpenAI's chat completions: it calls a tool, on request one that requires approval, and then
// returns text that no page may interpret as markup or misrepresent. Prints `ready` and its base URL, and serves until it is
// killed.

import http from 'node:http';

const TURNED = 'give \u202edrazzah on\u202c now';
const HOSTILE = `Two records. <img src=x onerror=alert(1)><script>document.title = "owned"</script> ${TURNED} \u{1f469}\u200d\u2695\ufe0f`;

const server = http.createServer(async (request, response) => {
  let body = '';
  for await (const piece of request) body += piece;
  const { messages } = JSON.parse(body);
  const answered = messages.at(-1).role === 'tool';
  const asked = messages.findLast(message => message.role === 'user').content;
  const wanted = JSON.stringify(asked).includes('approval')
    ? { name: 'hostile_tool', arguments: JSON.stringify({ note: TURNED }) }
    : { name: 'get_patient_records', arguments: '{"patient_id":"NUGWI"}' };
  const call = { index: 0, id: 'call-1', type: 'function', function: wanted };
  const deltas = answered
    ? [...HOSTILE.matchAll(/.{1,12}/gu)].map(([text]) => ({ content: text }))
    : [{ tool_calls: [call] }];
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (delta, finish_reason = null) =>
    response.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
  for (const delta of deltas) send(delta);
  send({}, answered ? 'stop' : 'tool_calls');
  response.end('data: [DONE]\n\n');
});
server.listen(0, '127.0.0.1', () => console.log(`ready http://127.0.0.1:${server.address().port}/v1`));
