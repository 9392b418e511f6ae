// The timeline: a row for each process (or group of processes), time in calls by kind. Far away it shows sums of bins; close
// by, the calls that the page has.
import type { Call, Data } from "../data";
import { button, canvas, colour, el, plain } from "../dom";
import { navigate, pictures, ticks, type View, goTo } from "../view";
import { bytes, count, time, word } from "../words";

const LEFT = 150;
const AXIS = 26;
/** Calls are drawn when a bin is at least so wide, pixels. */
const CLOSE = 3;

/** Bins of one kind at every level: each level has half as many as the one before. */
function pyramid(bins: number[]): number[][] {
  const levels = [bins];
  for (let last = bins; last.length > 1; ) {
    const next: number[] = [];
    for (let i = 0; i < last.length; i += 2) next.push((last[i] + (last[i + 1] ?? 0)) / 2);
    levels.push(next);
    last = next;
  }
  return levels;
}

export function timeline(data: Data, view: View): HTMLElement {
  const { rows, kinds } = data.timeline;
  if (rows.length === 0) return el("p", {}, "The trace has no part of a process: there are no calls of programs to show.");
  const levels = rows.map((row) => row.bins.map(pyramid));
  const byRow: Call[][] = rows.map(() => []);
  for (const call of data.calls.list) byRow[call.row]?.push(call);
  for (const calls of byRow) calls.sort((a, b) => a.begin - b.begin);
  const all = data.calls.list.length >= data.calls.made;
  const height = Math.max(14, Math.min(34, Math.floor(560 / rows.length)));
  let chosen: Call | null = null;
  let focused: number | null = null;

  const note = el("p", { class: "small", role: "status" });
  const detail = el("div", { class: "detail", role: "status", "aria-live": "polite" });

  const picture = canvas("Timeline: time in calls for each process", rows.length * height + AXIS, (context, width, whole) => {
    const { from, to } = view.range;
    const scale = (width - LEFT) / (to - from);
    const x = (at: number) => LEFT + (at - from) * scale;
    const colours = kinds.map((k) => colour(`kind-${k}`));
    const binPixels = data.axis.width * scale;
    const level = Math.max(0, Math.min(levels[0][0].length - 1, Math.floor(Math.log2(1 / Math.max(binPixels, 1e-9)))));
    const binWidth = data.axis.width * 2 ** level;
    const close = binPixels >= CLOSE;
    let drawn = 0;
    context.font = `${Math.min(15, height - 2)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    rows.forEach((row, r) => {
      const top = r * height;
      context.fillStyle = colour(focused === r ? "marked" : r % 2 ? "row" : "page");
      context.fillRect(0, top, width, height);
      for (let b = Math.floor(from / binWidth); b <= Math.floor(to / binWidth); b++) {
        let at = top + height;
        const left = Math.max(x(b * binWidth), LEFT);
        const right = Math.min(x((b + 1) * binWidth), width);
        kinds.forEach((_, k) => {
          const tall = ((levels[r][k][level][b] ?? 0) / 255) * height;
          if (tall <= 0) return;
          context.globalAlpha = close ? 0.35 : 1;
          context.fillStyle = colours[k];
          context.fillRect(left, Math.max(at - tall, top), Math.max(right - left, 0.5), Math.min(tall, at - top));
          at -= tall;
        });
      }
      context.globalAlpha = 1;
      if (close) {
        for (const call of byRow[r]) {
          if (call.begin > to) break;
          if (call.begin + call.duration < from) continue;
          drawn += 1;
          const left = Math.max(x(call.begin), LEFT);
          const right = Math.max(Math.min(x(call.begin + call.duration), width), left + 1);
          context.fillStyle = call.error ? colour("bad") : colours[call.kind];
          context.fillRect(left, top + 2, right - left, height - 4);
          if (right - left > 70 && height >= 14) {
            context.save();
            context.beginPath();
            context.rect(left, top, right - left - 2, height);
            context.clip();
            context.fillStyle = colour("on-colour");
            context.fillText(call.operation, left + 4, top + height / 2);
            context.restore();
          }
        }
      }
      context.fillStyle = colour("text");
      context.fillText(plain(row.name).slice(0, 22), 4, top + height / 2, LEFT - 8);
    });
    if (chosen) {
      const left = Math.max(x(chosen.begin), LEFT);
      context.strokeStyle = colour("text");
      context.lineWidth = 2;
      context.strokeRect(left, chosen.row * height + 1, Math.max(x(chosen.begin + chosen.duration) - left, 3), height - 2);
    }
    context.strokeStyle = colour("line");
    context.lineWidth = 1;
    context.fillStyle = colour("text");
    context.font = "14px system-ui, sans-serif";
    for (const { at, text } of ticks(from, to, Math.floor((width - LEFT) / 130))) {
      context.beginPath();
      context.moveTo(x(at), 0);
      context.lineTo(x(at), whole - AXIS + 4);
      context.stroke();
      if (x(at) + 3 + context.measureText(text).width < width) context.fillText(text, x(at) + 3, whole - AXIS / 2);
    }
    note.textContent = !close
      ? `Sums of ${time(binWidth)} each. Zoom to see single calls.`
      : all
        ? `All calls of this range are drawn: ${count(drawn)}.`
        : `Pale: sums of ${time(data.axis.width)}. Of ${count(data.calls.made)} calls the page has the ${count(data.calls.list.length)} longest; ${count(drawn)} are in this range. For all of them ask \`penstock trace list\`.`;
  });

  const choose = (call: Call | null) => {
    chosen = call;
    detail.replaceChildren();
    if (call) {
      const tree = data.slow.findIndex((s) => s.process === call.process && s.nodes[0]?.id === call.id);
      const key = /^rank (\d+)$/.exec(call.process);
      detail.append(
        el("p", {}, el("strong", {}, call.operation), ` (${call.layer}) of ${plain(call.process)}, call ${call.id}: ${time(call.duration)} from ${time(call.begin)}, ${bytes(call.bytes)}${call.error ? `, error ${call.error}` : ""}`),
        el("p", {}, plain(call.file)),
        el("p", {}, tree >= 0 ? button("Follow it to the devices", () => goTo("slow", tree)) : el("span", {}, "Its tree is not on this page: ", el("code", {}, key ? `penstock trace follow ${plain(word(data.about.trace))} ${key[1]}/${call.id}` : "penstock trace follow"))),
      );
    }
    picture.redraw();
  };
  const step = (by: number) => {
    const { from, to } = view.range;
    const row = chosen?.row ?? focused ?? 0;
    const calls = byRow[row];
    const now = chosen ? calls.indexOf(chosen) : by > 0 ? calls.findIndex((c) => c.begin + c.duration >= from) - 1 : calls.length;
    const next = calls[now + by];
    if (!next) return;
    if (next.begin < from || next.begin + next.duration > to) view.show(next.begin - (to - from) / 4, next.begin - (to - from) / 4 + Math.max(to - from, next.duration * 1.5));
    choose(next);
  };
  const pick = (at: number, y: number) => {
    const row = Math.floor(y / height);
    const slack = ((view.range.to - view.range.from) / Math.max(picture.element.clientWidth - LEFT, 1)) * 3;
    const near = (c: Call) => (at < c.begin ? c.begin - at : Math.max(0, at - c.begin - c.duration));
    let best: Call | null = null;
    for (const call of byRow[row] ?? []) {
      if (call.begin > at + slack) break;
      if (near(call) <= slack && (!best || near(call) < near(best) || (near(call) === near(best) && call.duration < best.duration))) best = call;
    }
    choose(best);
  };
  picture.element.addEventListener("keydown", (event) => {
    if (event.key === "," || event.key === ".") step(event.key === "." ? 1 : -1);
    else if (event.key === "Enter") detail.querySelector("button")?.click();
    else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && focused !== null) {
      focused = Math.max(0, Math.min(rows.length - 1, focused + (event.key === "ArrowUp" ? -1 : 1)));
      choose(null);
    } else return;
    event.preventDefault();
  });
  view.listen(picture.redraw);
  pictures.set("timeline", (focus) => {
    focused = focus ?? focused ?? 0;
    picture.redraw();
  });
  const legend = el("p", { class: "legend" }, ...kinds.map((k) => el("span", {}, el("i", { class: `swatch kind-${k}` }), k)), el("span", {}, el("i", { class: "swatch bad" }), "failed"));
  const tools = el(
    "div",
    { class: "tools" },
    button("+", () => view.zoom(0.5), "zoom in"),
    button("−", () => view.zoom(2), "zoom out"),
    button("←", () => view.move(-0.25), "earlier"),
    button("→", () => view.move(0.25), "later"),
    button("All", () => view.whole(), "show the whole run"),
    legend,
  );
  const place = el("div", { class: "picture" }, picture.element);
  navigate(picture.element, view, LEFT, pick);
  return el(
    "div",
    {},
    el("p", {}, "Each row is a process, or several. Its height is the share of time in calls. A gap is computing, or time that was not recorded."),
    tools,
    place,
    note,
    detail,
  );
}
