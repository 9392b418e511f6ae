// Looks at `penstock view` in a real browser: node test/view.mjs FILE CHROMIUM SCREENSHOTS
// FILE is the one with the address. Enters, asks by form and in SQL, with good and bad questions, and tries without the token.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [file, executablePath, shots] = process.argv.slice(2);
const address = /url=([^"]+)/.exec(await readFile(file, "utf8"))[1];
const base = address.split("/#")[0];
const result = { console: [], elsewhere: [], checks: [] };
const check = (what, holds) => result.checks.push([what, Boolean(holds)]);

const browser = await chromium.launch({ executablePath, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
try {
  const context = await browser.newContext({ viewport: { width: 1500, height: 1000 }, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.on("console", (message) => result.console.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => result.console.push(`error: ${error}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(`${base}/`) && !/^(data|file):/.test(request.url())) result.elsewhere.push(request.url());
  });
  // As a user would: the file leads to the page.
  await page.goto(pathToFileURL(file).href);
  await page.waitForSelector("#ask");
  check("the address bar has no token", !page.url().includes("#"));
  check("the page's path is a secret", /\/[0-9a-f]{64}\/$/.test(page.url()));
  check("scripts see no cookie", (await page.evaluate(() => document.cookie)) === "");
  await page.reload();
  await page.waitForSelector("#ask");

  const answer = async () => {
    await page.waitForFunction(() => !/^Asking/.test(document.querySelector("#ask [aria-live]").textContent) && document.querySelector("#ask [aria-live]").textContent !== "");
    return page.innerText("#ask [aria-live]");
  };
  await page.keyboard.press("8");
  check("8 goes to the questions", (await page.evaluate(() => document.activeElement?.id)) === "ask-title");
  await page.click("#ask button >> nth=0");
  const breakdown = await answer();
  check("where did the time go", /mpiio/.test(breakdown) && /device/.test(breakdown) && /penstock trace breakdown/.test(breakdown));
  await page.screenshot({ path: `${shots}/ask.png` });
  await page.selectOption("#ask select", { index: 2 });
  await page.fill("#ask-key", "0/2");
  await page.press("#ask-key", "Enter");
  check("a call is followed", /rank 0/.test(await answer()));
  await page.fill("#ask-key", "<img src=x onerror=alert(1)>");
  await page.press("#ask-key", "Enter");
  check("a wrong key is told", /no key/.test(await answer()));
  check("and makes no element", (await page.$("img")) === null);
  await page.fill("#ask-sql", "select count(*) as calls, 12345678901234567890 as large, '<b>x</b>' as text from calls");
  await page.press("#ask-sql", "Control+Enter");
  const sql = await answer();
  check("SQL is answered, exactly", /12345678901234567890/.test(sql) || /DuckDB.*is not here/.test(sql));
  check("what it holds is text", (await page.$("#ask b")) === null);
  await page.fill("#ask-sql", "drop view events");
  await page.click("#ask button >> nth=1");
  check("a change is refused", /only questions|is not here/.test(await answer()));
  await page.screenshot({ path: `${shots}/refused.png` });

  const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  for (const theme of ["dark", "light"]) {
    await page.evaluate((t) => document.documentElement.dataset.theme !== t && document.getElementById("theme").click(), theme);
    await page.evaluate(`${axe}; undefined`);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    for (const v of violations) check(`accessible, ${theme}: ${v.id}: ${v.nodes[0].html.slice(0, 120)}`, false);
  }

  // Others: without a token, with a wrong one, and a page of another site.
  const other = await (await browser.newContext()).newPage();
  await other.goto(`${base}/`);
  await other.waitForFunction(() => /lacks its token/.test(document.body.textContent));
  await other.goto(`${base}/#${"0".repeat(64)}`);
  await other.reload();
  const said = await other.innerText("#state");
  check("a wrong token opens nothing", !/Time by rank/.test(said) && (await other.$("#ask")) === null);
  const direct = await other.goto(page.url());
  check("the path alone opens nothing", direct.status() === 401);
  const still = await (await browser.newContext({ javaScriptEnabled: false })).newPage();
  await still.goto(address);
  check("without JavaScript the first page says so", /JavaScript/.test(await still.innerText("body")));
} finally {
  await browser.close();
}
console.log(JSON.stringify(result));
