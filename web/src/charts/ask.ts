// Questions to the trace: those of `penstock trace`, and SQL. Only where the page comes from `penstock view`.
import type { Data } from "../data";
import { button, choice, el, plain, table } from "../dom";
import type { View } from "../view";
import { bytes, count, percent, time, word } from "../words";

/** What can be asked by name, and in words. crates/cli/src/view/ask.rs has the same names. */
const QUESTIONS: [name: string, words: string, key: "none" | "group" | "call"][] = [
  ["breakdown", "Where did the time go, by layer?", "group"],
  ["list", "Which calls took longest?", "group"],
  ["follow", "What did one call cause?", "call"],
  ["stats", "How long did calls take?", "group"],
  ["throughput", "How many bytes a second?", "group"],
  ["servers", "Who reached which server?", "group"],
  ["access-pattern", "How do accesses follow each other?", "group"],
  ["files", "What happened to each file?", "group"],
  ["lines", "Which source lines do calls come from?", "group"],
  ["phases", "Which phases of I/O were there?", "group"],
  ["overview", "What does the trace hold?", "none"],
];
/** Rows that are shown. */
const MOST_ROWS = 1000;
const EXAMPLE = "select layer, operation, count(*) as calls, sum(bytes) as bytes\nfrom events group by layer, operation order by bytes desc";

type Cell = string | number | boolean | null | object;
interface Answer {
  rows?: Record<string, Cell>[];
  notes?: string[];
  [total: string]: unknown;
}

/** A figure in the unit that its name says. */
function cell(name: string, value: Cell | undefined): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "object") return JSON.stringify(value);
  if (typeof value !== "number") return String(value);
  if (/_ns$/.test(name)) return time(value);
  if (/^bytes$|_bytes$/.test(name)) return bytes(value);
  if (/(^|_)share$/.test(name)) return percent(value);
  return Number.isInteger(value) ? String(value) : value.toPrecision(6);
}

const heading = (name: string) => name.replace(/_ns$/, "").replaceAll("_", " ");

/** An answer as a table, its single figures below. */
function shown(answer: Answer): Node[] {
  const rows = answer.rows ?? [];
  const isNumber = (name: string) => rows.every((row) => typeof row[name] === "number" || row[name] === null);
  const all = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  // Names stand before figures.
  const names = [...all.filter((name) => !isNumber(name)), ...all.filter(isNumber)];
  const some = rows.slice(0, MOST_ROWS);
  const caption = rows.length > some.length ? `The first ${count(some.length)} of ${count(rows.length)} rows` : `${count(rows.length)} rows`;
  const figures = Object.entries(answer).filter(([name]) => name !== "rows" && name !== "notes");
  return [
    rows.length > 0
      ? table(caption, names.map((name) => (isNumber(name) ? "#" : "") + plain(heading(name))), some.map((row) => names.map((name) => cell(name, row[name]))))
      : el("p", {}, "No rows."),
    ...figures.map(([name, value]) => el("p", {}, `${plain(heading(name))}: ${plain(cell(name, value as Cell))}`)),
    ...(answer.notes ?? []).map((note) => el("p", { class: "small" }, plain(String(note)))),
  ];
}

export function ask(data: Data, _view: View): HTMLElement {
  const place = el("div", { role: "status", "aria-live": "polite" });
  const trace = plain(word(data.about.trace));
  let asked = 0;

  const send = async (question: { name: string; call?: string; sql?: string }, command: string) => {
    const mine = ++asked;
    place.replaceChildren(el("p", {}, "Asking …"));
    let told: Node[];
    try {
      const reply = await fetch("ask", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
      const text = await reply.text();
      if (!reply.ok) throw new Error(text.trim());
      const { answer, error } = JSON.parse(text) as { answer?: Answer; error?: string };
      told = error !== undefined || !answer ? [el("p", { class: "failed", role: "alert" }, plain(error ?? "no answer"))] : shown(answer);
    } catch (why) {
      const text = why instanceof TypeError ? "`penstock view` does not answer. Does it still run?" : why instanceof Error ? why.message : String(why);
      told = [el("p", { class: "failed", role: "alert" }, plain(text))];
    }
    // A later question may have been answered first.
    if (mine === asked) place.replaceChildren(...told, el("p", { class: "small" }, "In a terminal: ", el("code", {}, command)));
  };

  const key = el("input", { type: "text", id: "ask-key", spellcheck: "false", autocomplete: "off", placeholder: "all" });
  const select = choice("Question", QUESTIONS.map(([, words]) => words), () => {
    key.disabled = QUESTIONS[select.select.selectedIndex][2] === "none";
  });
  const byName = () => {
    const [name, , about] = QUESTIONS[select.select.selectedIndex];
    const call = about === "none" ? "" : key.value.trim();
    const more = call === "" ? "" : name === "follow" ? ` ${word(call)}` : ` --call ${word(call)}`;
    void send({ name, call }, `penstock trace ${name} ${trace}${more}`);
  };
  key.addEventListener("keydown", (event) => {
    if (event.key === "Enter") byName();
  });
  const sql = el("textarea", { id: "ask-sql", rows: "4", spellcheck: "false" });
  sql.value = EXAMPLE;
  const inSql = () => void send({ name: "sql", sql: sql.value }, `penstock trace sql ${trace} ${plain(word(sql.value))}`);
  sql.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.ctrlKey) return;
    event.preventDefault();
    inSql();
  });
  return el(
    "div",
    {},
    el("p", {}, "A key is PROCESS/CALL, such as 0/17; * stands for all. Questions read the trace and change nothing."),
    el("div", { class: "tools" }, select.element, el("label", { for: "ask-key" }, "Key"), key, button("Ask", byName)),
    el("p", {}, el("label", { for: "ask-sql" }, "In SQL, with the views events, calls, requests, devices and files:")),
    sql,
    el("div", { class: "tools" }, button("Ask in SQL", inSql, "ask in SQL (Ctrl and Enter)")),
    place,
  );
}
