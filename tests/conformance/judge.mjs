// Reads what a run of the suite left, and prints a line: ok with its figures, or FAIL for every check that is not as it should.
// Run as: node judge.mjs NAME LEFT_OUT RESULTS CHECKS | DIRECT
//
// NAME is for the lines; RESULTS what the suite was told as -o. Without a gateway CHECKS have to pass, and nothing may fail
// or warn. With one, DIRECT are the results without it: whatever passed there passes here too, each check as often. What
// cannot stands in the file LEFT_OUT, `scenario` or `scenario:check`, and nothing else may stand there:
//
//   server: fails here, as the suite takes it
//   absent: is not checked here, or less often

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const [name, leftOut, results, measure] = process.argv.slice(2);
const BAD = new Set(['FAILURE', 'WARNING']);

// What the file says, by list.
function lists(file) {
  const lists = { server: new Set(), absent: new Set() };
  let list;
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    list = /^(\w+):/.exec(line)?.[1] ?? list;
    const entry = /^ *- (\S+)/.exec(line)?.[1];
    if (entry) lists[list].add(entry);
  }
  return lists;
}
const { server: failing, absent } = lists(leftOut);
const fails = (scenario, check) => failing.has(scenario) || failing.has(`${scenario}:${check}`);

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
  for (const { id, name, status } of checks ?? []) {
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
const wanted = /^\d+$/.test(measure) ? Number(measure) : undefined;
const there = wanted === undefined ? read(measure) : new Map();
const missed = new Set();
let passed = 0;
for (const scenario of new Set([...here.keys(), ...there.keys()])) {
  const checks = here.get(scenario);
  if (!checks && !failing.has(scenario)) fail(scenario, 'broke off');
  for (const check of checks ?? []) {
    if (BAD.has(check.status) && !fails(scenario, check.id)) {
      fail(scenario, `${check.id}: ${check.status}: ${check.errorMessage ?? check.description}`);
    }
  }
  // What passes of a scenario that cannot is chance.
  if (failing.has(scenario)) continue;
  const now = passes(checks);
  for (const count of now.values()) passed += count;
  for (const [check, count] of passes(there.get(scenario))) {
    const id = check.split(' ', 1)[0];
    if ((now.get(check) ?? 0) >= count || fails(scenario, id)) continue;
    if (absent.has(`${scenario}:${id}`)) missed.add(`${scenario}:${id}`);
    else fail(scenario, `${check}: passes directly, but not here`);
  }
}
for (const entry of absent) if (!missed.has(entry)) fail(entry, 'is checked here, and stands among what is not');
if (wanted !== undefined && passed !== wanted && failed === 0) fail('all', `${passed} checks passed, not ${wanted}`);
const without = [failing.size && `${failing.size} left out`, absent.size && `${absent.size} not checked here`].filter(Boolean);
if (failed === 0) console.log(`ok    ${[`${name}: ${here.size} scenarios`, `${passed} checks`, ...without].join(', ')}`);
process.exitCode = failed === 0 ? 0 : 1;
