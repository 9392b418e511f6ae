// Looks at a page in a real browser: node test/browser.mjs PAGE CHROMIUM SCREENSHOTS
// Loads it from its file with the network off, draws every picture, zooms, follows a call, changes the theme, checks for
// accessibility, with and without JavaScript. Prints one JSON object; anything in the console is an error.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [page_path, executablePath, shots] = process.argv.slice(2);
const address = pathToFileURL(page_path).href;
const result = { console: [], requests: [], checks: [] };
const check = (what, holds) => result.checks.push([what, Boolean(holds)]);

// Root has no sandbox of Chromium's.
const browser = await chromium.launch({ executablePath, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
try {
  const context = await browser.newContext({ viewport: { width: 1500, height: 1000 }, offline: true, colorScheme: "light", reducedMotion: "reduce" });
  const page = await context.newPage();
  page.on("console", (message) => result.console.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => result.console.push(`error: ${error}`));
  page.on("request", (request) => {
    if (request.url() !== address && !request.url().startsWith("data:")) result.requests.push(request.url());
  });
  page.on("dialog", (dialog) => {
    result.console.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.goto(address);
  await page.waitForSelector("#methods");
  const ids = await page.$$eval("section", (all) => all.map((s) => s.id));
  check("every section is there", ids.join() === "findings,timeline,time,heat,files,slow,methods");
  result.text = await page.innerText("main");
  // An HTML-hostile name would have made an element that no part of the page makes.
  check("names make no elements", (await page.$$("b, img, svg, iframe, form, marquee")).length === 0);
  check("nothing stands beside the page", (await page.$$eval("body > *", (all) => all.map((e) => e.tagName))).join() === "NOSCRIPT,DIV,SCRIPT,SCRIPT");

  // How many colours a canvas has: an empty one has one.
  const colours = (selector) =>
    page.$eval(selector, (canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const seen = new Set();
      for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
      return seen.size;
    });
  const has = async (selector) => (await page.$(selector)) !== null;
  for (const canvas of ["#timeline canvas", "#time canvas", "#heat canvas", "#files canvas"]) {
    if (await has(canvas)) check(`${canvas} is drawn`, (await colours(canvas)) > 3);
  }
  await page.screenshot({ path: `${shots}/light.png`, fullPage: true });

  if (await has("#timeline canvas")) {
    await page.keyboard.press("2");
    const note = () => page.innerText("#timeline [role=status] >> nth=0");
    const before = await note();
    const timeline = page.locator("#timeline canvas");
    await timeline.focus();
    for (let i = 0; i < 12; i++) await page.keyboard.press("+");
    const after = await note();
    await page.screenshot({ path: `${shots}/zoomed.png` });
    check("zooming by key shows single calls", before !== after && /drawn|are in this range/.test(after));
    await page.keyboard.press("0");
    check("0 shows the whole run", (await note()) === before);
    const box = await timeline.boundingBox();
    await page.mouse.move(box.x + 300, box.y + 10);
    await page.mouse.down();
    await page.mouse.move(box.x + 360, box.y + 12, { steps: 4 });
    await page.mouse.up();
    check("dragging zooms", (await note()) !== before);
    await page.keyboard.press("0");
    await page.keyboard.press(".");
    const chosen = await page.innerText("#timeline .detail");
    const calls = await page.evaluate(() => JSON.parse(document.getElementById("data").textContent).calls.list.some((call) => call[0] === 0));
    check("a key chooses a call", /call \d+/.test(chosen) === calls);
    await page.screenshot({ path: `${shots}/timeline.png` });
    await page.keyboard.press("0");
  }
  if (await has("#slow table")) {
    const rows = await page.$$eval("#slow tbody tr", (all) => all.length);
    check("a slow call has a tree", rows >= 1);
    const options = await page.$$eval("#slow option", (all) => all.length);
    result.trees = [];
    for (let index = 0; index < options; index++) {
      await page.selectOption("#slow select", { index });
      result.trees.push(await page.$$eval("#slow tbody tr td:first-child", (all) => all.map((td) => td.textContent)));
    }
    await page.selectOption("#slow select", { index: 0 });
    if (options > 1) {
      const first = await page.innerText("#slow caption");
      await page.selectOption("#slow select", { index: 1 });
      check("another call can be followed", (await page.innerText("#slow caption")) !== first);
    }
  }
  const links = page.locator(".finding button");
  result.findings = await page.$$eval(".finding", (all) => all.map((f) => f.dataset.finding));
  for (let i = 0; i < (await links.count()); i++) {
    await links.nth(i).click();
    const focused = await page.evaluate(() => document.activeElement?.id ?? "");
    check(`finding ${i} leads to a picture`, /^(timeline|time|heat|files|slow|methods)-title$/.test(focused));
  }
  if (await has("#heat select")) {
    for (const index of [1, 2]) await page.selectOption("#heat select", { index });
  }

  await page.keyboard.press("d");
  check("d changes the theme", (await page.evaluate(() => document.documentElement.dataset.theme)) === "dark");
  await page.evaluate(() => window.scrollTo(0, 0));
  await page.screenshot({ path: `${shots}/dark.png`, fullPage: true });

  const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  for (const theme of ["dark", "light"]) {
    await page.evaluate((t) => document.documentElement.dataset.theme !== t && document.getElementById("theme").click(), theme);
    await page.evaluate(`${axe}; undefined`);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    for (const v of violations) check(`accessible, ${theme}: ${v.id}: ${v.nodes[0].html.slice(0, 120)} (${v.nodes[0].failureSummary})`, false);
  }
  await page.setViewportSize({ width: 800, height: 600 });
  // Pictures follow the width one frame later.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 100)))));
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  check(`nothing is wider than a projector's 800 pixels (${wide})`, wide <= 0);
  await page.screenshot({ path: `${shots}/narrow.png`, fullPage: true });

  const without = await browser.newContext({ javaScriptEnabled: false, offline: true });
  const still = await without.newPage();
  await still.goto(address);
  check("without JavaScript the page says so", /JavaScript/.test(await still.innerText("noscript, body")));
} finally {
  await browser.close();
}
console.log(JSON.stringify(result));
