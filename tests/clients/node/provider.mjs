// A scripted model provider. Prints `ready` and its base URL, and serves until it is killed.
//
// Its answers depend on the last user message, on the model, and on the results of tools.

import { LLMock } from '@copilotkit/aimock';

const mock = new LLMock({ port: 0, host: '127.0.0.1' });

const calls = (...named) => ({ toolCalls: named.map(([name, args]) => ({ name, arguments: JSON.stringify(args) })) });
const asked = userMessage => ({ userMessage, hasToolResult: false });
const answered = (userMessage, toolResultContains) => ({ userMessage, hasToolResult: true, toolResultContains });

// One question, one call, and one answer with the result of the call.
function story(question, call, contains, answer) {
  mock.on(asked(question), calls(call));
  mock.on(answered(question, contains), { content: answer });
}

// Text calls: the call is in the content, the result comes as a message.
mock.on(
  { model: 'text-model', predicate: request => !JSON.stringify(request.messages.at(-1)).includes('[Tool Result: get_patient_records]') },
  { content: `I will look it up.\nTOOL: get_patient_records\nPARAMETERS: {"patient_id": "NUGWI"}\n` },
);
mock.on({ model: 'text-model' }, { content: 'Hypertension, treated with Lisinopril 10mg daily.' });

const NUGWI = { patient_id: 'NUGWI' };
story('Tell me about patient NUGWI', ['get_patient_overview', NUGWI], 'NUGWI', 'NUGWI is a patient of ward W2.');
story("Show me NUGWI's medical records", ['get_patient_records', NUGWI], 'Lisinopril', 'Hypertension, treated with Lisinopril 10mg daily.');
story('When was NUGWI admitted?', ['get_patient_admissions', NUGWI], 'NUGWI', 'There are admissions of NUGWI.');
story('What appointments does NUGWI have?', ['get_patient_appointments', NUGWI], 'NUGWI', 'There are appointments of NUGWI.');
story('Tell me about patient NOGWI', ['get_patient_overview', { patient_id: 'NOGWI' }], 'Invalid patient_id', 'There is no patient NOGWI.');

// Two calls at once.
mock.on(asked('Records and appointments of NUGWI'), calls(['get_patient_records', NUGWI], ['get_patient_appointments', NUGWI]));
mock.on(answered('Records and appointments of NUGWI'), { content: 'Both were read.' });
// Invalid arguments, then valid ones.
mock.on(asked('Records of nobody in particular'), calls(['get_patient_records', { patient_id: 5 }]));
mock.on(answered('Records of nobody in particular', 'Invalid arguments'), calls(['get_patient_records', NUGWI]));
mock.on(answered('Records of nobody in particular', 'Lisinopril'), { content: 'It worked in the end.' });
// A model that repeats the same call forever.
mock.on({ userMessage: 'Go round in circles', predicate: request => request.tool_choice !== 'none' }, calls(['get_my_shifts', {}]));
mock.on({ userMessage: 'Go round in circles' }, { content: 'I stop here.' });
// A tool that does not exist.
mock.on(asked('Use a tool that is not there'), calls(['drop_all_tables', {}]));
mock.on(answered('Use a tool that is not there'), { content: 'I cannot do that.' });
// Streams that break off within a word, and within a call.
mock.on(asked('Break off'), { content: 'This answer is never finished, whatever anybody does about it.' }, { truncateAfterChunks: 2, chunkSize: 5 });
mock.on(asked('Break off in a call'), calls(['get_patient_records', NUGWI]), { truncateAfterChunks: 2, chunkSize: 4 });
// Errors of the provider.
mock.on(asked('Fail'), { error: { message: 'out of order', type: 'server_error' }, status: 500 });
// An answer that is long enough to disconnect during it.
mock.on(asked('Count slowly'), { content: 'one two three four five six seven eight nine ten '.repeat(40) }, { streamingProfile: { tps: 20, ttft: 10 } });
// Calls a tool that a user must approve.
mock.on({ ...asked('Read with care'), model: 'careful-model' }, calls(['get_medical_records', NUGWI]));
mock.on(answered('Read with care', 'Lisinopril'), { content: 'Approved: Lisinopril 10mg daily.' });
mock.on(answered('Read with care'), { content: 'It was not approved.' });
mock.onMessage('hello', { content: 'Hello there.' });

await mock.start();
console.log(`ready ${mock.url}/v1`);
