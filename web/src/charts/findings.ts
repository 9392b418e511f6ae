// Findings: what is wrong, why it counts, what to change, and a link to the picture that shows it.
import type { Data, Finding, Level } from "../data";
import { button, el, plain } from "../dom";
import { goTo } from "../view";

const BADGES: Record<Level, string> = { high: "found", minor: "found, minor", fine: "not found", unknown: "cannot tell" };
const PICTURES: Record<string, string> = {
  timeline: "the timeline",
  time: "time by rank and layer",
  heat: "servers over time",
  files: "offsets over time",
  slow: "the slowest calls",
  methods: "methods and decisions",
};

function card(finding: Finding): HTMLElement {
  const see = button(`See ${PICTURES[finding.picture] ?? "the picture"}`, () => goTo(finding.picture, finding.focus));
  return el(
    "article",
    { class: `finding ${finding.level}`, "data-finding": finding.id },
    el("h3", {}, el("span", { class: "badge" }, BADGES[finding.level]), " ", plain(finding.title)),
    el("p", {}, plain(finding.text)),
    finding.remedy !== "" && el("p", { class: "remedy" }, el("strong", {}, "What to change: "), plain(finding.remedy)),
    el("p", { class: "small" }, `Found when: ${finding.threshold}.`),
    el("p", {}, see),
  );
}

export function findings(data: Data): HTMLElement {
  const found = data.findings.filter((f) => f.level === "high" || f.level === "minor");
  const rest = data.findings.filter((f) => !found.includes(f));
  const row = (f: Finding) =>
    el("li", { class: f.level, "data-finding": f.id }, el("strong", {}, plain(f.title)), ` (${BADGES[f.level]}): ${plain(f.text)} `, el("span", { class: "small" }, `Found when: ${f.threshold}.`));
  return el(
    "div",
    {},
    found.length === 0 && el("p", {}, "None of the checks below found something to change."),
    el("div", { class: "cards" }, ...found.map(card)),
    rest.length > 0 && el("details", {}, el("summary", {}, `Checks that found nothing, or could not tell (${rest.length})`), el("ul", { class: "checks" }, ...rest.map(row))),
  );
}
