// Tests the official OpenAI client and the Vercel AI SDK with /v1/chat/completions.
//
// Reads WARDGATE_URL and the tokens DOCTOR and NURSE from the environment. Prints one line per check. The exit code is not 0
// if a check failed.

import assert from 'node:assert/strict';
import process from 'node:process';
import { randomUUID } from 'node:crypto';

import OpenAI from 'openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';

import { report } from './report.mjs';

const { WARDGATE_URL, DOCTOR } = process.env;
const baseURL = new URL('/v1', WARDGATE_URL).href;
const openai = apiKey => new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 30_000 });
const clinic = createOpenAICompatible({ name: 'wardgate', baseURL, apiKey: DOCTOR })('clinic');
const RECORDS = "Show me NUGWI's medical records";
const question = content => [{ role: 'user', content }];

const CHECKS = [
  [
    'openai: the models are the assistants',
    async () => {
      const models = [];
      for await (const model of openai(DOCTOR).models.list()) models.push(model.id);
      assert.deepEqual(models.sort(), ['careful', 'clinic', 'clinic-text']);
    },
  ],
  [
    'openai: an answer from what the tools gave',
    async () => {
      const chat_id = randomUUID();
      const answer = await openai(DOCTOR).chat.completions.create({ model: 'clinic', messages: question(RECORDS), chat_id });
      assert.match(answer.id, /^chatcmpl-/);
      assert.equal(answer.object, 'chat.completion');
      assert.equal(answer.model, 'clinic');
      assert.equal(answer.system_fingerprint, chat_id);
      assert.match(answer.choices[0].message.content, /Lisinopril 10mg daily/);
      assert.equal(answer.choices[0].finish_reason, 'stop');
      assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    },
  ],
  [
    'openai: streaming, with the calls of tools beside the text and the usage at the end',
    async () => {
      const stream = await openai(DOCTOR).chat.completions.create({
        model: 'clinic', messages: question(RECORDS), stream: true, stream_options: { include_usage: true },
      });
      let text = '', usage, reason;
      const extensions = [];
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta?.content ?? '';
        reason = chunk.choices[0]?.finish_reason ?? reason;
        usage = chunk.usage ?? usage;
        if (chunk.wardgate) extensions.push(chunk.wardgate);
      }
      assert.match(text, /Lisinopril 10mg daily/);
      assert.equal(reason, 'stop');
      assert(usage.prompt_tokens > 0 && usage.completion_tokens > 0, JSON.stringify(usage));
      assert(extensions.some(event => event.type === 'tool_result' && event.success), JSON.stringify(extensions));
    },
  ],
  [
    'openai: a wrong token, an unknown model and an empty list of messages are errors of its own kinds',
    async () => {
      await assert.rejects(openai('nonsense').models.list(), OpenAI.AuthenticationError);
      const ask = (model, messages) => openai(DOCTOR).chat.completions.create({ model, messages });
      await assert.rejects(ask('nobody', question('hello')), OpenAI.NotFoundError);
      await assert.rejects(ask('clinic', []), OpenAI.BadRequestError);
    },
  ],
  [
    'ai: generateText answers from what the tools gave',
    async () => {
      const { text, finishReason } = await generateText({ model: clinic, prompt: RECORDS, maxRetries: 0 });
      assert.match(text, /Lisinopril 10mg daily/);
      assert.equal(finishReason, 'stop');
    },
  ],
  [
    'ai: streamText streams the same',
    async () => {
      let text = '';
      const answer = streamText({ model: clinic, prompt: RECORDS, maxRetries: 0 });
      for await (const part of answer.textStream) text += part;
      assert.match(text, /Lisinopril 10mg daily/);
      assert.equal(await answer.finishReason, 'stop');
    },
  ],
];

await report('', CHECKS);
