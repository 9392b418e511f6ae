// What was called, how, and what schedulers decided, with their reasons.
import type { Data } from "../data";
import { el, plain, table } from "../dom";
import { bytes, count, time } from "../words";

const REASONS: Record<string, string> = {
  alone: "alone: it went to the store by itself",
  joined: "joined: it went together with others that touch it",
  wait: "wait: the scheduler waited for more to join",
};

export function methods(data: Data): HTMLElement {
  const calls = table(
    "Calls of the program, by layer",
    ["layer", "operation", "how", "#calls", "#bytes", "#time", "#exclusive", "#median", "#longest", "#failed"],
    data.operations.map((o) => [
      o.layer,
      o.name,
      o.collective ? "collective" : o.layer === "mpiio" && /_(read|write|iread|iwrite)/.test(o.name) ? "independent" : "",
      count(o.calls),
      bytes(o.bytes),
      time(o.time),
      time(o.exclusive),
      time(o.median),
      time(o.most),
      o.errors > 0 ? count(o.errors) : "",
    ]),
  );
  const decisions =
    data.decisions.length > 0
      ? table(
          "Decisions of the servers' schedulers",
          ["server", "reason", "#decisions", "#bytes", "#time"],
          data.decisions.map((d) => [d.server, REASONS[d.reason] ?? d.reason, count(d.decisions), bytes(d.bytes), time(d.time)]),
        )
      : el("p", {}, "The trace has no decisions of schedulers: none ran, or servers were not traced.");
  const chosen = data.methods ?? [];
  const methods =
    chosen.length > 0
      ? table(
          "Methods that MPI-IO chose, by file",
          ["file", "direction", "method", "reason", "#calls", "#bytes", "#operations", "#bytes of operations", "#bytes to other ranks"],
          chosen.map((m) => [m.file, m.direction, m.method, el("span", { class: "sentence" }, plain(m.reason) || "–"), count(m.calls), bytes(m.bytes), count(m.operations), bytes(m.accessed), bytes(m.resent)]),
        )
      : el(
          "p",
          {},
          data.methods
            ? "The run's summary names no method: no access went through Penstock's MPI-IO."
            : "Which methods MPI-IO chose is not known: the trace has no run.json, which `penstock run --trace` writes when a run ends.",
        );
  return el("div", {}, methods, data.operations.length > 0 ? calls : el("p", {}, "The trace has no calls of programs."), decisions);
}
