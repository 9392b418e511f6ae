// Puts the page together: what the run was, what limits the page, findings, pictures.
import { ask } from "./charts/ask";
import { findings } from "./charts/findings";
import { heat } from "./charts/heat";
import { layers } from "./charts/layers";
import { methods } from "./charts/methods";
import { offsets } from "./charts/offsets";
import { slow } from "./charts/slow";
import { timeline } from "./charts/timeline";
import { load, type Data } from "./data";
import { button, el, plain } from "./dom";
import { goTo, View } from "./view";
import { bytes, count, percent, time } from "./words";

const SECTIONS: [id: string, title: string, draw: (data: Data, view: View) => HTMLElement][] = [
  ["findings", "Findings", (data) => findings(data)],
  ["timeline", "Timeline", timeline],
  ["time", "Time by rank and layer", layers],
  ["heat", "Servers over time", heat],
  ["files", "Offsets over time", offsets],
  ["slow", "Slowest calls", slow],
  ["methods", "Methods and decisions", (data) => methods(data)],
];

function about(data: Data): HTMLElement {
  const a = data.about;
  const facts: [string, string][] = [
    ["run", time(a.span)],
    ["processes", count(a.processes)],
    ["servers", count(a.servers)],
    ["written", bytes(a.written)],
    ["read", bytes(a.read)],
    ["time in calls", percent(a.inside)],
    ["records", count(a.records)],
  ];
  const lines: [string, string][] = [
    ["command", a.command],
    ["trace", a.trace],
    ["began", a.began > 0 ? `${new Date(a.began).toISOString().replace("T", " ").slice(0, 19)} UTC` : ""],
    ["hosts", a.hosts],
    ["job", a.job],
    ["user", a.user],
  ];
  return el(
    "header",
    {},
    el("h1", {}, "Report of a run"),
    el("dl", { class: "lines" }, ...lines.filter(([, v]) => v).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, plain(v))))),
    el("dl", { class: "facts" }, ...facts.map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v)))),
  );
}

/** What the page lacks, as the trace says it. */
function limits(data: Data): HTMLElement | null {
  if (data.notes.length === 0) return null;
  const [few, more] = [data.notes.slice(0, 5), data.notes.slice(5)];
  const item = (note: string) => el("li", {}, plain(note));
  return el(
    "aside",
    { class: "limits", id: "limits", "aria-labelledby": "limits-title" },
    el("h2", { id: "limits-title" }, "What is missing"),
    el("ul", {}, ...few.map(item)),
    more.length > 0 && el("details", {}, el("summary", {}, `${more.length} more`), el("ul", {}, ...more.map(item))),
  );
}

function theme(view: View): HTMLElement {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const toggle = button("", () => set(document.documentElement.dataset.theme !== "dark"));
  const set = (isDark: boolean) => {
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    toggle.textContent = isDark ? "Light" : "Dark";
    view.redraw();
  };
  set(dark.matches);
  dark.addEventListener("change", (event) => set(event.matches));
  toggle.id = "theme";
  toggle.title = "light or dark (key d)";
  return toggle;
}

function build(data: Data): HTMLElement {
  const view = new View(data.end);
  const all: typeof SECTIONS = data.asks ? [...SECTIONS, ["ask", "Ask", ask]] : SECTIONS;
  const links = all.map(([id, title], i) => {
    const link = el("a", { href: `#${id}`, title: `key ${i + 1}` }, title);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      goTo(id, null);
    });
    return link;
  });
  const nav = el("nav", { "aria-label": "Pictures" }, ...links, theme(view));
  const sections = all.map(([id, title, draw]) =>
    el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title`, tabindex: "-1" }, title), draw(data, view)),
  );
  const keys =
    `Keys: 1 to ${all.length} go to a picture, d changes light and dark. In a picture with a time axis: + and − zoom, ← and → move, 0 shows ` +
    "all; drag or Ctrl and wheel zoom, too. In the timeline , and . choose the call before or after, Enter follows it.";
  document.addEventListener("keydown", (event) => {
    const typing = [HTMLSelectElement, HTMLInputElement, HTMLTextAreaElement].some((kind) => event.target instanceof kind);
    if (typing || event.ctrlKey || event.altKey || event.metaKey) return;
    const section = all[Number(event.key) - 1];
    if (section) goTo(section[0], null);
    if (event.key === "d") document.getElementById("theme")?.click();
  });
  const foot = el("footer", {}, el("p", {}, keys), el("p", {}, `Penstock ${data.about.penstock}. ${data.asks ? "Questions go to the `penstock view` that shows this page" : "The page loads nothing and sends nothing"}.`));
  return el("div", {}, nav, el("main", {}, about(data), limits(data), ...sections, foot));
}

const page = document.getElementById("page");
try {
  page?.replaceChildren(build(load()));
} catch (error) {
  const text = `This page cannot show its data: ${error instanceof Error ? error.message : String(error)}. Make it anew with \`penstock report TRACE -o report.html\`.`;
  page?.replaceChildren(el("main", {}, el("h1", {}, "Report of a run"), el("p", { class: "failed", role: "alert" }, text)));
  throw error;
}
