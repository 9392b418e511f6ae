// The slowest calls, each with its tree down to the devices.
import type { Data, Node, Slow } from "../data";
import { choice, el, plain, table } from "../dom";
import { pictures, type View } from "../view";
import { bytes, count, time, word } from "../words";

/** A bar that shows when a record ran within the call. */
function bar(node: Node, call: Node): HTMLElement {
  const fill = el("span", { class: `layer-${node.layer}` });
  const length = Math.max(call.duration, 1);
  const from = Math.max(0, Math.min((node.begin - call.begin) / length, 1));
  fill.style.left = `${from * 100}%`;
  fill.style.width = `${Math.max(0.5, Math.min(node.duration / length, 1 - from) * 100)}%`;
  return el("span", { class: "bar" }, fill);
}

function tree(slow: Slow): HTMLElement {
  const call = slow.nodes[0];
  const rows = slow.nodes.map((node) => {
    const name = el("span", { class: "step" }, `${node.layer} ${node.operation}`);
    name.style.paddingLeft = `${node.depth * 1.1}em`;
    return [
      name,
      node.part,
      bar(node, call),
      time(node.begin - call.begin),
      time(node.duration),
      time(node.exclusive),
      time(node.critical),
      bytes(node.bytes),
      count(node.offset),
      node.error === 0 ? "" : `${node.error}`,
    ];
  });
  return table(`Call ${slow.key}: what it caused`, ["what", "where", "when", "#from", "#time", "#exclusive", "#critical path", "#bytes", "#offset", "error"], rows);
}

export function slow(data: Data, view: View): HTMLElement {
  const calls = data.slow.filter((s) => s.nodes.length > 0);
  if (calls.length === 0) return el("p", {}, "The trace has no calls of programs to follow.");
  const place = el("div", {});
  const show = (i: number) => {
    const call = calls[i];
    const first = call.nodes[0];
    place.replaceChildren(
      tree(call),
      el("p", { class: "small" }, call.left_out > 0 ? `${count(call.left_out)} records are left out: those with the least time on the critical path. ` : "", "All of it: ", el("code", {}, `penstock trace follow ${plain(word(data.about.trace))} ${call.key}`)),
      ...call.notes.map((note) => el("p", { class: "small" }, plain(note))),
    );
    if (first && (first.begin < view.range.from || first.begin > view.range.to)) view.whole();
  };
  const label = (s: Slow) => `${s.nodes[0].operation}, ${s.process}, call ${s.nodes[0].id}: ${time(s.nodes[0].duration)}`;
  const select = choice("Call", calls.map(label), show);
  pictures.set("slow", (focus) => {
    if (focus === null || !calls[focus]) return;
    select.select.selectedIndex = focus;
    show(focus);
  });
  show(0);
  return el(
    "div",
    {},
    el("p", {}, `The longest calls (${calls.length}). Critical path: how much shorter the call would have been without this record.`),
    el("div", { class: "tools" }, select.element),
    place,
  );
}
