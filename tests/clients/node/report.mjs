// Runs checks in order and prints one line for each.

import process from 'node:process';

export async function report(prefix, checks) {
  for (const [promise, check] of checks) {
    try {
      await check();
      console.log(`ok    ${prefix}${promise}`);
    } catch (error) {
      process.exitCode = 1;
      console.log(`FAIL  ${prefix}${promise}: ${error.message}`);
    }
  }
}
