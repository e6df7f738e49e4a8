// Measures the page with the status of 10 000 nodes: `cargo build -p gabion-console --example crowd`, then `npm run paint`.

import { spawn } from 'node:child_process';
import { gzipSync } from 'node:zlib';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const files = ['index.html', 'console.js', 'console.css'].map((name) => readFileSync(new URL(`../dist/${name}`, import.meta.url)));
const sum = (sizes) => sizes.reduce((a, b) => a + b, 0);
console.log(`page: ${sum(files.map((file) => file.length))} bytes, ${sum(files.map((file) => gzipSync(file).length))} gzipped`);

const crowd = spawn(process.env.CROWD_BINARY ?? '../../../target/debug/examples/crowd', { stdio: ['ignore', 'pipe', 'inherit'] });
const lines = createInterface({ input: crowd.stdout })[Symbol.asyncIterator]();
const [password, url] = [(await lines.next()).value, (await lines.next()).value];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.goto(url);
  await page.getByLabel('One-time password').fill(password);
  await page.keyboard.press('Enter');
  await page.getByText('rack 249', { exact: true }).waitFor();
  const [paints, racks] = [[], []];
  for (let look = 0; look < 9; look += 1) {
    await page.reload({ waitUntil: 'commit' });
    await page.getByText('rack 249', { exact: true }).waitFor();
    // Both since the start of the navigation.
    racks.push(await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => done(performance.now())))));
    paints.push(
      await page.evaluate(
        () =>
          new Promise((done) => {
            new PerformanceObserver((list) => {
              for (const paint of list.getEntriesByName('first-contentful-paint')) done(paint.startTime);
            }).observe({ type: 'paint', buffered: true });
          }),
      ),
    );
  }
  const told = (times) => {
    const sorted = times.map(Math.round).sort((a, b) => a - b);
    return `median ${sorted[4]} ms, from ${sorted[0]} to ${sorted[8]} ms`;
  };
  console.log(`first paint: ${told(paints)}`);
  console.log(`all 250 racks of 10 000 nodes shown: ${told(racks)}`);
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-crowd.png` });
} finally {
  await browser.close();
  crowd.kill();
}
