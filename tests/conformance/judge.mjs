// Reads what a run of the suite left, and prints a line: ok with its figures, or FAIL for every check that is not as it should.
// Run as: node judge.mjs NAME CHECKS LEFT_OUT RESULTS [DIRECT]
//
// NAME is for the lines; CHECKS how many have to pass; LEFT_OUT a file of what cannot, as the suite takes it; RESULTS
// what the suite was told as -o. With DIRECT, the results without a gateway, everything that passed there has to pass
// here too; without it, nothing may fail or warn.

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const [name, wanted, leftOut, results, direct] = process.argv.slice(2);
const BAD = new Set(['FAILURE', 'WARNING']);

// Scenarios, or `scenario:check`.
const excused = new Set([...readFileSync(leftOut, 'utf8').matchAll(/^ *- (\S+)/gm)].map(([, entry]) => entry));
const isExcused = (scenario, check) => excused.has(scenario) || excused.has(`${scenario}:${check}`);

// The checks of each scenario; null where the scenario broke off and left none.
function read(directory) {
  const scenarios = new Map();
  for (const entry of readdirSync(directory)) {
    const scenario = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(entry)?.[1];
    if (scenario === undefined) continue;
    const file = path.join(directory, entry, 'checks.json');
    scenarios.set(scenario, existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : null);
  }
  return scenarios;
}

// How often each check passed: one id may be checked in several ways.
function passes(checks) {
  const counts = new Map();
  for (const { id, name, status } of checks) {
    if (status === 'SUCCESS') counts.set(`${id} ${name}`, (counts.get(`${id} ${name}`) ?? 0) + 1);
  }
  return counts;
}

let failed = 0;
function fail(scenario, what) {
  console.log(`FAIL  ${name}: ${scenario}: ${what}`);
  failed += 1;
}

const here = read(results);
const there = direct ? read(direct) : new Map();
let passed = 0;
for (const scenario of new Set([...here.keys(), ...there.keys()])) {
  const checks = here.get(scenario);
  if (!checks) {
    if (!excused.has(scenario)) fail(scenario, 'broke off');
    continue;
  }
  for (const check of checks.filter(check => BAD.has(check.status) && !isExcused(scenario, check.id))) {
    fail(scenario, `${check.id}: ${check.status}: ${check.errorMessage ?? check.description}`);
  }
  const now = passes(checks);
  // What passes of a scenario that cannot is chance.
  if (!excused.has(scenario)) passed += [...now.values()].reduce((sum, count) => sum + count, 0);
  for (const [check, count] of passes(there.get(scenario) ?? [])) {
    if ((now.get(check) ?? 0) < count && !isExcused(scenario, check.split(' ', 1)[0])) fail(scenario, `${check}: passes directly, but not here`);
  }
}
if (passed !== Number(wanted) && failed === 0) fail('all', `${passed} checks passed, not ${wanted}`);
if (failed === 0) console.log(`ok    ${name}: ${here.size} scenarios, ${passed} checks`);
process.exitCode = failed === 0 ? 0 : 1;
