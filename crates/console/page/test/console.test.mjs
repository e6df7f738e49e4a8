// Drives the console in a headless Chromium through the loss of a node: login, kill, repair, a new pool.
//
// GABION_BINARY is the command to test. CHROMIUM is the browser, if it is not Debian's. With SCREENSHOTS, a directory, it
// takes the pictures of docs/console.md. Without a browser it is passed over with one line.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';

const gabion = resolve(process.env.GABION_BINARY ?? '../../../target/debug/gabion');
const browsers = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'];
const executablePath = browsers.find((path) => path && existsSync(path));
if (!executablePath) {
  console.log("skipped: there is no Chromium, so the console's page is not driven; the package is chromium");
  process.exit(0);
}

const scratch = mkdtempSync(join(tmpdir(), 'gabion-console-'));
const directory = join(scratch, 'cluster');
const environment = { ...process.env, GABION_DIR: directory };
for (const name of ['GABION_TLS', 'GABION_COORDINATOR', 'GABION_NO_CONSOLE']) delete environment[name];
const run = (...words) => execFileSync(gabion, words, { env: environment, encoding: 'utf8' });

const pictures = process.env.SCREENSHOTS;
/** A picture for the document: dark or light, wide or as on a telephone. */
async function picture(page, name, { dark = false, width = 1280, height = 800 } = {}) {
  if (!pictures) return;
  await page.emulateMedia({ colorScheme: dark ? 'dark' : 'light' });
  await page.setViewportSize({ width, height });
  await page.screenshot({ path: join(pictures, `${name}.png`) });
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 1280, height: 800 });
}

let browser;
try {
  const up = JSON.parse(run('--format=json', 'cluster', 'up', '--racks=3', '--nodes-per-rack=4', '--lease-ms=2000', '--grace-s=3600'));
  run('pool', 'create', 'vm', '--code=rs(4,2)', '--chunk=64KiB');
  const bytes = join(scratch, 'bytes');
  writeFileSync(bytes, Buffer.alloc(4 << 20, 'gabion '));
  run('put', bytes, 'disks/web.img');
  run('put', bytes, 'backup.tar');

  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  page.setDefaultTimeout(30_000);
  const faults = [];
  const foreign = [];
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('console', (message) => {
    // Chromium reports the answers 401 and 409, which the page expects.
    if (message.type() === 'error' && !message.text().includes('Failed to load resource')) faults.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(up.console.url) && !request.url().startsWith('data:')) foreign.push(request.url());
  });

  // A wrong password, and the right one, by the keyboard alone.
  await page.goto(up.console.url);
  // The page puts the keyboard into the field, which it draws a moment after it is loaded.
  await page.locator('input:focus').waitFor();
  await page.keyboard.type('wrong');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').filter({ hasText: 'the password is wrong' }).waitFor();
  await page.getByLabel('One-time password').fill(up.console.password);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'All is well' }).waitFor();
  const kept = await page.evaluate(() => [sessionStorage.length, document.cookie]);
  assert.deepEqual(kept, [1, ''], 'the key is of the tab, and no script sees the cookie');
  await page.reload();
  await page.getByRole('heading', { name: 'All is well' }).waitFor();
  await page.goto(`${up.console.url}#/__proto__`);
  await page.getByRole('heading', { name: 'All is well' }).waitFor();
  await picture(page, 'console-well');

  // A node dies, and the first thing that the page shows is that.
  run('chaos', 'kill-node', '5');
  const health = page.getByRole('region', { name: 'Health' });
  await health.getByText('node 5 has failed').waitFor();
  await page.getByRole('button', { name: 'node 5: failed' }).click();
  await page.getByRole('region', { name: 'Node 5' }).getByText('failed').waitFor();
  assert.match(await page.getByRole('img', { name: 'health: yellow' }).getAttribute('class'), /yellow/);
  await picture(page, 'console-failed', { dark: true });
  await picture(page, 'console-narrow', { dark: true, width: 390, height: 844 });

  // Where the file's chunks lie, and the plan of a repair.
  await page.getByRole('link', { name: 'Files' }).click();
  await page.getByRole('link', { name: 'disks/' }).click();
  await page.getByRole('link', { name: 'disks/web.img' }).click();
  await page.getByTitle(/on node 5 .*lost/).first().click();
  const byte = page.getByRole('region', { name: 'One byte' });
  await byte.getByText('1 chunk is lost').waitFor();
  await picture(page, 'console-file');
  await byte.locator('tr', { has: page.getByText('lost', { exact: true }) }).getByRole('link').click();
  await page.getByRole('img', { name: /repair of/ }).waitFor();
  await page.getByLabel('Scheme').selectOption('conventional');
  await page.waitForURL(/conventional/);
  await page.getByRole('img', { name: /repair of/ }).waitFor();
  await picture(page, 'console-plan');

  // Repairs are limited, paused and resumed, and then done.
  await page.getByRole('link', { name: 'Repair' }).click();
  await page.getByLabel('All nodes together').fill('40');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('at most 1 GiB/s').waitFor();
  // Nothing is left to undo once the order is carried out.
  await page.getByRole('button', { name: 'Undo', disabled: true }).waitFor();
  assert.equal(JSON.parse(run('--format=json', 'repair', 'status')).limits.total_bytes_per_s, 2 ** 30);
  // Another operator's limit is not undone.
  run('repair', 'limit', '--node=900MB', '--total=2000MB');
  await page.getByLabel('All nodes together').fill('40');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('at most 1 GiB/s').waitFor();
  await page.getByRole('button', { name: 'Undo', disabled: true }).waitFor();
  assert.ok(JSON.parse(run('--format=json', 'repair', 'status')).limits.node_bytes_per_s > 0);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByText('paused', { exact: true }).waitFor();
  await page.getByRole('heading', { name: /lost chunks? waits? for the end of the grace period/ }).waitFor();
  // The grace period ends at once, and what is due then stays while repairs are paused.
  await page.getByRole('button', { name: 'Repair now' }).click();
  await page.getByRole('heading', { name: /chunks? to repair, time left unknown/ }).waitFor();
  await page.getByText('paused', { exact: true }).waitFor();
  assert.ok(JSON.parse(run('--format=json', 'repair', 'status')).lost_chunks > 0);
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByRole('heading', { name: 'Nothing to repair' }).waitFor();
  assert.equal(JSON.parse(run('--format=json', 'repair', 'status')).lost_chunks, 0);
  await page.getByRole('cell', { name: /^rack \d → \d$/ }).first().waitFor();
  await picture(page, 'console-repair');

  // The event log has it.
  await page.getByRole('link', { name: 'Events' }).click();
  await page.getByText('node 5 has failed').first().waitFor();
  await picture(page, 'console-events', { dark: true });

  // A pool, and the refusal of a second one of its name.
  await page.getByRole('link', { name: 'Pools' }).click();
  run('pool', 'quota', 'vm', '--bytes=1GiB', '--files=2');
  await page.getByRole('cell', { name: '2 of 2' }).waitFor();
  await page.getByRole('cell', { name: /^\d.* of 1 GiB$/ }).waitFor();
  await page.getByLabel('Name').fill('archive');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByText('pool archive is made').waitFor();
  await page.getByRole('cell', { name: 'archive' }).waitFor();
  assert.ok(JSON.parse(run('--format=json', 'pool', 'ls')).some((pool) => pool.name === 'archive'));
  await page.getByLabel('Name').fill('archive');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('alert').waitFor();
  await page.getByRole('button', { name: 'Dismiss' }).click();
  await page.getByRole('alert').waitFor({ state: 'detached' });
  await picture(page, 'console-pools');

  // On a telephone nothing is wider than the screen.
  await page.setViewportSize({ width: 390, height: 844 });
  for (const view of ['overview', 'repair', 'events', 'pools', 'files']) {
    await page.goto(`${up.console.url}#/${view}`);
    await page.locator('main .card').first().waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 390, `${view} is ${wide} pixels wide`);
  }

  // The coordinator is away: the page says so, and how old it is.
  run('chaos', 'kill-coordinator');
  await page.getByRole('alert').filter({ hasText: 'No answer' }).waitFor();
  await page.getByRole('link', { name: 'Overview' }).click();
  await page.getByRole('heading', { name: /^was: /i }).waitFor();
  assert.equal(await health.evaluate((card) => card.classList.contains('unknown')), true);
  run('cluster', 'up');
  await page.getByRole('alert').filter({ hasText: 'No answer' }).waitFor({ state: 'detached' });

  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('One-time password').waitFor();
  assert.deepEqual(faults, []);
  assert.deepEqual(foreign, []);
  console.log('the console was driven through login, kill, repair and pool creation');
} finally {
  await browser?.close();
  try {
    run('cluster', 'down');
  } catch {
    // It was not started.
  }
  rmSync(scratch, { recursive: true, force: true });
}
