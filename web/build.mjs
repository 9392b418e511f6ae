// Builds dist/page.html: src/page.html with the style and the script in it, and a policy that lets nothing else run.
// The same sources and package-lock.json give the same bytes; a test compares.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";

const here = new URL(".", import.meta.url).pathname;
const options = {
  absWorkingDir: here,
  bundle: true,
  charset: "ascii",
  legalComments: "none",
  minify: true,
  target: "es2020",
  write: false,
};
const bundle = async (entry) => {
  const result = await build({ ...options, entryPoints: [entry] });
  const text = result.outputFiles[0].text.trim();
  if (/<\/(script|style)|<!--/i.test(text)) throw new Error(`${entry}: its bundle would end its element`);
  return text;
};
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const output = process.argv[2] ?? `${here}dist/page.html`;
const [script, style] = [await bundle("src/main.ts"), await bundle("src/style.css")];
const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'`;
let page = await readFile(`${here}src/page.html`, "utf8");
for (const [place, text] of [["@POLICY@", policy], ["@STYLE@", style], ["@SCRIPT@", script]]) {
  if (page.split(place).length !== 2) throw new Error(`src/page.html: ${place} has to stand in it once`);
  page = page.replace(place, () => text);
}
await mkdir(new URL("dist/", import.meta.url), { recursive: true });
await writeFile(output, page);
console.log(`${output}: ${page.length} bytes`);
