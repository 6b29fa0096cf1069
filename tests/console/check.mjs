// Tests the console in a real browser. With SHOTS=DIR, screenshots of the pages are saved there.

import assert from 'node:assert/strict';
import process from 'node:process';
import { chromium } from 'playwright-core';
import { report } from './report.mjs';

const { WARDGATE_URL, DOCTOR, NURSE, BILLING, AUDITOR, CHROMIUM, SHOTS } = process.env;
const CONSOLE = `${WARDGATE_URL}/console`;

const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

// Faults that no page may have: dialogs, errors, and loads that its content security policy forbids.
const wrong = [];

async function visitor(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(20_000);
  const page = await context.newPage();
  page.on('dialog', dialog => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('pageerror', error => wrong.push(`${page.url()}: ${error.message}`));
  page.on('console', message => { if (/Content.Security.Policy|Refused to/i.test(message.text())) wrong.push(`${page.url()}: ${message.text()}`); });
  return page;
}

// Signs in with the form, as a user.
async function signedIn(token, options) {
  const page = await visitor(options);
  await page.goto(CONSOLE);
  await page.getByLabel('Bearer token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL('**/console/tools');
  return page;
}

async function shot(page, name) {
  if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage: true });
}

async function call(page, patient = 'NUGWI') {
  await page.goto(`${CONSOLE}/tools/get_medical_records`);
  await page.getByLabel('patient_id').fill(patient);
  await page.getByRole('button', { name: 'Call', exact: true }).click();
  await page.locator('#outcome').waitFor();
}

// Characters that no page may contain: invisible ones and those that change the text direction.
const MARKED = 'give ‹U+202E›drazzah on‹U+202C› now';
async function nothingHidden(page) {
  const text = await page.evaluate(() => document.body.innerText);
  assert.ok(!/[\u200b\u202a-\u202e\u2066-\u2069]/.test(text), text);
  assert.ok(text.includes(MARKED), text);
}

// Accessibility requirements of every page.
async function accessible(page) {
  const faults = await page.evaluate(() => {
    const faults = [];
    if (document.documentElement.lang !== 'en') faults.push('no language');
    if (document.querySelectorAll('h1').length !== 1) faults.push('not one heading of the first level');
    if (!document.querySelector('main')) faults.push('no main part');
    for (const field of document.querySelectorAll('input:not([type=hidden]), select, textarea')) {
      if (!field.labels.length) faults.push(`${field.id || field.name} has no label`);
    }
    for (const table of document.querySelectorAll('table')) {
      if (!table.querySelector('th[scope]')) faults.push('a table without headers');
    }
    for (const button of document.querySelectorAll('button, a')) {
      if (!button.textContent.trim()) faults.push('a button or link without words');
    }
    return faults;
  });
  assert.deepEqual(faults, [], page.url());
}

let doctor, auditor;
const checks = [
  ['signing in takes a keyboard and nothing else', async () => {
    const page = await visitor();
    await page.goto(CONSOLE);
    await accessible(page);
    await shot(page, 'sign-in');
    // The field already has the focus.
    await page.keyboard.insertText(NURSE);
    await page.keyboard.press('Enter');
    await page.waitForURL('**/console/tools');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
    await page.context().close();
  }],
  ['a token that is none says so and keeps nobody out for good', async () => {
    const page = await visitor();
    await page.goto(CONSOLE);
    await page.getByLabel('Bearer token').fill('not.a.token');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').getByText('Sign-in failed').waitFor();
    await page.context().close();
  }],
  ['tools are searched, and one is called by its form', async () => {
    doctor = await signedIn(DOCTOR);
    await accessible(doctor);
    await shot(doctor, 'tools');
    await doctor.getByLabel('Find').fill('medical');
    await doctor.keyboard.press('Enter');
    await doctor.getByText(/\d+ of \d+ tools/).waitFor();
    await doctor.getByRole('link', { name: 'get_medical_records' }).click();
    await accessible(doctor);
    await doctor.getByLabel('patient_id').fill('NUGWI');
    await doctor.getByLabel('limit').fill('5');
    await doctor.getByRole('button', { name: 'Call', exact: true }).click();
    await doctor.locator('#outcome', { hasText: 'Done.' }).waitFor();
    await accessible(doctor);
    assert.equal(await doctor.getByRole('cell', { name: 'NUGWI', exact: true }).count(), 2);
    assert.equal(await doctor.getByLabel('patient_id').inputValue(), 'NUGWI');
    await doctor.getByText('JSON-RPC', { exact: true }).click();
    await doctor.getByRole('region', { name: 'Request' }).getByText('"tools/call"').waitFor();
    await shot(doctor, 'call');
  }],
  ['a nurse sees masked what a doctor sees', async () => {
    const page = await signedIn(NURSE);
    await call(page);
    assert.equal(await page.getByRole('cell', { name: '•••WI', exact: true }).count(), 2);
    assert.ok(!(await page.locator('table').innerText()).includes('NUGWI'));
    await shot(page, 'masked');
    await page.context().close();
  }],
  ['arguments that the tool does not take are refused in its words, and kept in the form', async () => {
    await call(doctor, 'nugwi');
    assert.match(await doctor.locator('#outcome').innerText(), /failed/);
    await doctor.getByRole('region', { name: 'Text' }).getByText(/patient_id/).waitFor();
    assert.equal(await doctor.getByLabel('patient_id').inputValue(), 'nugwi');
    await shot(doctor, 'refused');
  }],
  ['to whom a tool is hidden it is as if it were not there', async () => {
    const page = await signedIn(BILLING);
    const texts = [];
    for (const name of ['get_medical_records', 'no_such_tool']) {
      assert.equal((await page.goto(`${CONSOLE}/tools/${name}`)).status(), 404);
      texts.push(await page.content());
    }
    assert.equal(texts[0], texts[1]);
    await page.context().close();
  }],
  ['the page of a call is there after Back and Reload, which call nothing', async () => {
    await call(doctor);
    const page = doctor.url();
    assert.match(page, /\/console\/calls\//);
    await doctor.goto(`${CONSOLE}/policy`);
    await doctor.goBack();
    await doctor.locator('#outcome', { hasText: 'Done.' }).waitFor();
    await doctor.reload();
    await doctor.locator('#outcome', { hasText: 'Done.' }).waitFor();
    assert.equal(doctor.url(), page);
    await doctor.goBack();
    await doctor.getByRole('heading', { name: 'Result' }).waitFor();
    // Of all these, only one call is recorded.
    await doctor.goto(page);
    await doctor.getByRole('definition').getByRole('link').first().click();
    await doctor.waitForURL('**/console/record?call_id=*');
    assert.equal(await doctor.locator('tbody tr').count(), 1);
  }],
  ['a form or message of one person is not sent on as another', async () => {
    const first = await signedIn(DOCTOR);
    await first.goto(`${CONSOLE}/tools/get_medical_records`);
    await first.getByLabel('patient_id').fill('NUGWI');
    const chat = await first.context().newPage();
    await chat.goto(`${CONSOLE}/chat`);
    const second = await first.context().newPage();
    await second.goto(`${CONSOLE}/sign-in`);
    await second.getByLabel('Bearer token').fill(NURSE);
    await second.getByRole('button', { name: 'Sign in' }).click();
    await second.waitForURL('**/console/tools');
    await first.getByRole('button', { name: 'Call', exact: true }).click();
    await first.getByRole('heading', { name: 'Another user is signed in' }).waitFor();
    await first.getByText('nothing was done').waitFor();
    assert.match(await first.getByRole('banner').innerText(), /nurse\.joy/);
    await accessible(first);
    await shot(first, 'another-person');
    await chat.getByLabel('Your message').fill('What is on record of NUGWI?');
    await chat.keyboard.press('Enter');
    await chat.getByRole('log').getByText('Another user is now signed in').waitFor();
    await shot(chat, 'another-person-chat');
    await first.context().close();
  }],
  ['a doctor reads what they did themselves, and no page leads further', async () => {
    await doctor.goto(`${CONSOLE}/tools`);
    await doctor.getByRole('link', { name: 'Your calls' }).click();
    await doctor.getByRole('heading', { name: 'Your calls' }).waitFor();
    await accessible(doctor);
    await shot(doctor, 'own-calls');
    const row = doctor.getByRole('row').filter({ hasText: 'get_medical_records' }).first();
    await row.getByRole('link').click();
    await doctor.getByRole('heading', { name: /^Record \d+$/ }).waitFor();
    await doctor.goto(`${CONSOLE}/record?subject=nurse.joy`);
    assert.ok(!(await doctor.locator('main').innerText()).includes('nurse.joy'));
  }],
  ['a page that says what went wrong has the way to the others', async () => {
    assert.equal((await doctor.goto(`${CONSOLE}/tools/no_such_tool`)).status(), 404);
    assert.match(await doctor.getByRole('banner').innerText(), /dr\.yenji/);
    await accessible(doctor);
    await shot(doctor, 'nothing-here');
    await doctor.getByRole('link', { name: 'Tools', exact: true }).click();
    await doctor.waitForURL('**/console/tools');
  }],
  ['an auditor is shown what there is for auditors, and reads who did what', async () => {
    auditor = await signedIn(AUDITOR);
    await auditor.getByText('Your roles may not call any tool.').waitFor();
    await accessible(auditor);
    await shot(auditor, 'auditor');
    await auditor.getByRole('link', { name: 'The record', exact: true }).click();
    await accessible(auditor);
    await shot(auditor, 'record');
    // The doctor viewed the record, and no request was refused.
    const looks = auditor.getByRole('row').filter({ hasText: 'dr.yenji' }).filter({ hasText: 'record/read' });
    assert.ok(await looks.count() > 0);
    assert.equal(await looks.filter({ hasText: 'denied' }).count(), 0);
    // An invalid filter keeps the form.
    await auditor.goto(`${CONSOLE}/record?subject=nurse.joy&since=yesterday`);
    await auditor.getByRole('alert').getByText('Write times as').waitFor();
    assert.equal(await auditor.getByLabel('Who', { exact: true }).inputValue(), 'nurse.joy');
    assert.equal(await auditor.getByLabel('Since (UTC)').inputValue(), 'yesterday');
    await accessible(auditor);
    await shot(auditor, 'wrong-filter');
    await auditor.getByRole('link', { name: 'Reset' }).click();
    await auditor.getByLabel('Who', { exact: true }).fill('nurse.joy');
    await auditor.getByLabel('Outcome').selectOption('ok');
    await auditor.getByRole('button', { name: 'Show' }).click();
    const row = auditor.getByRole('row').filter({ hasText: 'get_medical_records' }).first();
    await row.waitFor();
    await row.getByRole('link').click();
    await auditor.getByRole('heading', { name: /^Record \d+$/ }).waitFor();
    await accessible(auditor);
    await shot(auditor, 'record-entry');
    await auditor.getByRole('link', { name: 'All records of this call' }).click();
    await auditor.waitForURL('**/console/record?call_id=*');
    assert.equal(await auditor.locator('tbody tr').count(), 1);
    const [file] = await Promise.all([auditor.waitForEvent('download'), auditor.getByRole('link', { name: /JSON Lines/ }).click()]);
    const text = await (await file.createReadStream()).toArray();
    assert.equal(JSON.parse(Buffer.concat(text).toString()).record.caller.subject, 'nurse.joy');
  }],
  ['what tools say and give does not run', async () => {
    await doctor.goto(`${CONSOLE}/tools?q=hostile`);
    await doctor.getByText('<script>document.title = "owned"').waitFor();
    await doctor.getByRole('link', { name: 'hostile_tool' }).click();
    await doctor.getByRole('button', { name: 'Call', exact: true }).click();
    await doctor.getByRole('cell', { name: '<img src=x onerror=alert(1)>' }).waitFor();
    await nothingHidden(doctor);
    assert.equal(await doctor.title(), 'hostile_tool · Wardgate');
    assert.equal(await doctor.locator('img, main script').count(), 0);
    await shot(doctor, 'hostile');
  }],
  ['a chat tells its calls and its answer, and what a model says does not run either', async () => {
    await doctor.goto(`${CONSOLE}/chat`);
    await accessible(doctor);
    await doctor.getByLabel('Your message').fill('What is on record of NUGWI?');
    await doctor.keyboard.press('Enter');
    const talk = doctor.getByRole('log');
    await talk.getByText('get_patient_records answered').waitFor();
    await talk.getByText(`Two records. <img src=x onerror=alert(1)><script>document.title = "owned"</script> ${MARKED} \u{1f469}\u200d\u2695\ufe0f`).waitFor();
    await talk.getByText('get_patient_records answered').click();
    await talk.getByText(/NUGWI/).last().waitFor();
    await doctor.locator('#send:enabled').waitFor();
    assert.notEqual(await doctor.locator('#conversation').innerText(), 'new');
    assert.equal(await doctor.title(), 'Chat · Wardgate');
    assert.equal(await talk.locator('img, script').count(), 0);
    await shot(doctor, 'chat');
  }],
  ['a call that waits for a person shows all of it, and no decision is dressed up', async () => {
    await doctor.goto(`${CONSOLE}/chat`);
    await doctor.getByLabel('Your message').fill('Ask for approval.');
    await doctor.keyboard.press('Enter');
    const waits = doctor.getByRole('group', { name: 'A call that waits for your decision' });
    await waits.waitFor();
    await doctor.locator('#send:enabled').waitFor();
    assert.ok((await waits.locator('pre').innerText()).includes(MARKED));
    await nothingHidden(doctor);
    const looks = button => button.evaluate(it => [getComputedStyle(it).backgroundColor, getComputedStyle(it).borderColor, getComputedStyle(it).color].join());
    const [refuse, run] = [waits.getByRole('button', { name: 'Refuse' }), waits.getByRole('button', { name: 'Let it run' })];
    assert.equal(await looks(run), await looks(refuse));
    assert.equal(await doctor.evaluate(() => document.activeElement.id), 'message');
    await accessible(doctor);
    await shot(doctor, 'approval');
    await refuse.click();
    await doctor.getByText('You refused it.').waitFor();
    await doctor.locator('#send:enabled').waitFor();
    assert.equal(await waits.getByRole('button').count(), 0);
    await shot(doctor, 'approval-refused');
  }],
  ['everything but the chat works without a script', async () => {
    const page = await signedIn(DOCTOR, { javaScriptEnabled: false });
    await page.goto(`${CONSOLE}/tools/get_medical_records`);
    await page.getByLabel('patient_id').fill('NUGWI');
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    await page.locator('#outcome', { hasText: 'Done.' }).waitFor();
    await page.goto(`${CONSOLE}/chat`);
    await page.getByText('The chat requires JavaScript').waitFor();
    await page.context().close();
  }],
  ['pages fit a telephone and the dark', async () => {
    const page = await signedIn(DOCTOR, { viewport: { width: 375, height: 700 }, colorScheme: 'dark' });
    for (const path of ['tools', 'tools/get_medical_records', 'chat', 'policy', 'record']) {
      await page.goto(`${CONSOLE}/${path}`);
      const wide = await page.evaluate(() => document.scrollingElement.scrollWidth);
      assert.ok(wide <= 375, `${path} is ${wide} wide`);
    }
    await call(page);
    const ground = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    assert.equal(ground, 'rgb(18, 22, 28)');
    await shot(page, 'narrow-dark');
    await page.goto(`${CONSOLE}/policy`);
    await shot(page, 'rights-dark');
    await page.context().close();
  }],
  ['who signs out is out', async () => {
    await doctor.goto(`${CONSOLE}/tools`);
    await doctor.getByRole('button', { name: 'Sign out' }).click();
    await doctor.waitForURL('**/console/sign-in');
    await doctor.goto(`${CONSOLE}/tools/get_medical_records`);
    assert.match(doctor.url(), /sign-in\?next=/);
    // The user returns to the requested page.
    await doctor.getByLabel('Bearer token').fill(DOCTOR);
    await doctor.getByRole('button', { name: 'Sign in' }).click();
    await doctor.waitForURL('**/console/tools/get_medical_records');
  }],
  ['no page opened a dialog, broke, or asked for what its policy forbids', async () => assert.deepEqual(wrong, [])],
];

await report('console: ', checks);
await browser.close();
