// Tests sign-in to the console with a real authorization server (`oidc-provider`), in a real browser. Tokens are valid for five
// seconds, so that they are renewed. Reads CONSOLE (the URL of the pages) and CHROMIUM from the environment.

import assert from 'node:assert/strict';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';
import { chromium } from 'playwright-core';
import { report } from './report.mjs';

const { CONSOLE, CHROMIUM } = process.env;

const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const context = await browser.newContext();
context.setDefaultTimeout(20_000);
const page = await context.newPage();

async function session() {
  const cookies = await context.cookies(`${CONSOLE}/tools`);
  return cookies.find(({ name }) => name === 'wardgate_session');
}

await report('console sign-in, ', [
  ['a person signs in with the provider, and comes back to the page they wanted', async () => {
    await page.goto(`${CONSOLE}/policy`);
    await page.getByRole('button', { name: 'Sign in with 127.0.0.1' }).click();
    await page.getByPlaceholder('Enter any login').fill('dr.yenji');
    await page.getByPlaceholder('and password').fill('any');
    await page.getByRole('button', { name: 'Sign-in' }).click();
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.waitForURL('**/console/policy');
    await page.getByText('dr.yenji').first().waitFor();
  }],
  ['the cookie has an id alone, which no script gets', async () => {
    const { value, httpOnly, sameSite } = await session();
    assert.equal(value.length, 43);
    assert.ok(httpOnly);
    assert.equal(sameSite, 'Strict');
  }],
  ['the person calls a tool as themselves', async () => {
    await page.goto(`${CONSOLE}/tools/get_medical_records`);
    await page.getByLabel('patient_id').fill('NUGWI');
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    await page.locator('#outcome', { hasText: 'Done.' }).waitFor();
    await page.getByText('Hypertension').first().waitFor();
  }],
  ['the session outlives its tokens', async () => {
    const { value } = await session();
    const end = Date.now() + 12_000;
    while (Date.now() < end) {
      await page.goto(`${CONSOLE}/tools`);
      assert.match(page.url(), /\/console\/tools$/);
      await pause(500);
    }
    assert.equal((await session()).value, value);
  }],
  ['who signs out is out here and at the provider', async () => {
    const { value } = await session();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('button', { name: 'Yes, sign me out' }).click();
    await page.waitForURL('**/console/sign-in');
    assert.equal(await session(), undefined);
    await context.addCookies([{ name: 'wardgate_session', value, url: `${CONSOLE}/` }]);
    await page.goto(`${CONSOLE}/tools`);
    assert.match(page.url(), /sign-in\?next=/);
    await page.getByRole('button', { name: 'Sign in with 127.0.0.1' }).click();
    await page.getByPlaceholder('Enter any login').waitFor();
  }],
]);
await browser.close();
