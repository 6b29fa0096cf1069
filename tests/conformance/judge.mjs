// Judges the results of a run of the suite. Prints an ok line with figures, or a FAIL line for every unexpected result.
// Run as: node judge.mjs NAME LEFT_OUT RESULTS CHECKS | DIRECT
//
// NAME is printed; RESULTS is the output directory of the suite (-o). Without a gateway, the number CHECKS must pass, without
// failures or warnings. With a gateway, DIRECT contains the results without it: every check that passed there must pass equally
// often. The file LEFT_OUT lists the exceptions, as `scenario` or `scenario:check`, and must contain no unnecessary ones:
//
//   server: fails here; the suite reads this list itself
//   absent: is not checked here, or less often

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const [name, leftOut, results, measure] = process.argv.slice(2);
const BAD = new Set(['FAILURE', 'WARNING']);

// The exceptions, by list.
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

// The checks of each scenario, or null if the scenario was aborted without results.
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

// How often each check passed. One id may be checked several times.
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
  // Passing checks of a scenario that is expected to fail are ignored.
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
