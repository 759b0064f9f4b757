// The supervision tree as it lives: who supervises whom, what waits, what was restarted.

import { fill, h, s, visible } from "../dom.js";
import { count, duration } from "../format.js";
import { T } from "../texts.js";

const ROW = 40;
const COLUMN = 212;
const WIDE = 176;
const HIGH = 31;
const INDENT = 24; // of a level on a narrow window, where the tree grows downwards
const narrow = matchMedia("(max-width: 760px)");

export function open(app) {
  const picture = h("div", { class: "tree", tabindex: "0", role: "region", "aria-label": T.tree.label });
  const details = h("div", { class: "card tree-details", hidden: true });
  const nodes = h("section", { class: "card", hidden: true });
  const element = h("div", { class: "page" }, h("div", {}, h("h1", {}, T.pages.tree), h("p", { class: "hint" }, T.tree.intro)), nodes, picture, details);
  let chosen = null;
  let before = new Map();
  let tree = null;

  function draw() {
    const { nodes, links, height, width } = narrow.matches ? outline(tree) : layOut(tree);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    for (const [from, children] of links) svg.append(s("path", { class: "branch", d: branch(from, children) }));
    const now = new Map();
    for (const { info, x, y } of nodes) {
      now.set(info.path, info.handled);
      const isBusy = before.has(info.path) && before.get(info.path) !== info.handled;
      const isChosen = chosen === info.path;
      const facts = info.depth ? T.tree.queued(info.depth) : info.restarts ? T.tree.restarted(info.restarts) : "";
      const figure = info.depth ? `${info.depth} …` : info.restarts ? `↻ ${info.restarts}` : info.handled ? count(info.handled) : "";
      const title = `${info.name}, ${info.state}${facts ? `, ${facts}` : ""}`;
      const node = s(
        "g",
        { class: `actor ${info.state}${info.restarts ? " restarted" : ""}${isBusy ? " busy" : ""}${isChosen ? " chosen" : ""}`, transform: `translate(${x} ${y})`, tabindex: "0", role: "button", "aria-pressed": String(isChosen), "aria-label": title, "data-path": info.path || "root" },
        s("rect", { width: WIDE, height: HIGH, rx: 7 }),
        mark(info.state),
        s("text", { x: 26, y: 20 }, short(info.name, figure ? 14 : 18)),
        figure ? s("text", { x: WIDE - 9, y: 20, class: facts ? "facts" : "figure", "text-anchor": "end" }, figure) : null,
      );
      const choose = () => {
        chosen = chosen === info.path ? null : info.path;
        draw();
      };
      node.addEventListener("click", choose);
      node.addEventListener("keydown", (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), choose()));
      svg.append(node);
    }
    const focused = document.activeElement?.closest?.(".actor")?.dataset.path;
    fill(picture, svg);
    if (focused) picture.querySelector(`[data-path="${CSS.escape(focused)}"]`)?.focus();
    before = now;
    showDetails(nodes.find(({ info }) => info.path === chosen)?.info);
  }

  function showDetails(info) {
    details.hidden = !info;
    if (!info) return;
    const rows = [
      [T.tree.path, info.path || info.name],
      [T.tree.state, info.state],
      [T.tree.restarts, count(info.restarts)],
      [T.tree.handled, count(info.handled)],
      [T.tree.queue, info.capacity ? `${count(info.depth)} / ${count(info.capacity)}` : null],
      [T.tree.high, info.capacity ? count(info.highWater) : null],
      [T.tree.dropped, info.dropped ? count(info.dropped) : null],
      [T.tree.now, info.message ? `${info.message}${info.messageAge ? `, ${duration(info.messageAge * 1000)}` : ""}` : null],
      [T.tree.waitsAt, info.waitingAt],
      [T.channels.reason, info.reason],
    ].filter(([, value]) => value != null && value !== "");
    fill(details, h("h2", {}, ...visible(info.name)), h("dl", { class: "facts-list" }, rows.map(([key, value]) => [h("dt", {}, key), h("dd", { class: "mono" }, ...visible(value))])));
  }

  function showNodes({ here, nodes: all }) {
    nodes.hidden = !all.length;
    const rows = all.map((node) =>
      h(
        "li",
        { class: "row", "data-state": { up: "completed", draining: "suspended" }[node.state] ?? "failed" },
        h("span", { class: "state-dot" }),
        h("span", { class: "strong" }, ...visible(node.name)),
        h("span", { class: "hint" }, [node.state, node.name === here ? T.tree.here : "", node.version].filter(Boolean).join(" · ")),
        h("span", { class: "hint" }, T.tree.owns(node.chats, node.tasks)),
        h("span", { class: "end tags" }, node.owns.map((key) => h("span", { class: "tag mono" }, ...visible(key)))),
      ),
    );
    fill(nodes, h("h2", {}, T.tree.nodes), h("ul", { class: "rows" }, rows));
  }

  async function load() {
    if (document.visibilityState !== "visible") return;
    try {
      tree = await app.call("tree");
      draw();
      showNodes(await app.call("nodes.list"));
    } catch {
      // the banner says that there is no connection
    }
  }
  const off = app.whenOpen(load);
  const redraw = () => tree && draw();
  narrow.addEventListener("change", redraw);
  const timer = setInterval(load, 1000);
  return {
    element,
    close() {
      narrow.removeEventListener("change", redraw);
      off();
      clearInterval(timer);
    },
  };
}

/** Places of all nodes: a column for each level, a row for each leaf. */
function layOut(root) {
  const nodes = [];
  const links = [];
  let row = 0;
  let deepest = 0;
  const place = (info, level) => {
    deepest = Math.max(deepest, level);
    const first = row;
    const children = (info.children ?? []).map((child) => place(child, level + 1));
    if (!children.length) row++;
    const node = { info, x: 1.5 + level * COLUMN, y: 4.5 + first * ROW };
    nodes.push(node);
    if (children.length) links.push([node, children]);
    return node;
  };
  place(root, 0);
  return { nodes, links, height: row * ROW + 4, width: deepest * COLUMN + WIDE + 2 };
}

/** The same below one another, each level further in: for windows that are too narrow for columns. */
function outline(root) {
  const nodes = [];
  const links = [];
  let deepest = 0;
  const place = (info, level) => {
    deepest = Math.max(deepest, level);
    const node = { info, x: 1.5 + level * INDENT, y: 4.5 + nodes.length * ROW };
    nodes.push(node);
    const children = (info.children ?? []).map((child) => place(child, level + 1));
    if (children.length) links.push([node, children]);
    return node;
  };
  place(root, 0);
  return { nodes, links, height: nodes.length * ROW + 4, width: deepest * INDENT + WIDE + 2 };
}

/** The lines from a supervisor to its children: out of its side, or out of its foot where they stand below it. */
function branch(from, children) {
  const middles = children.map((child) => child.y + HIGH / 2);
  const [x, y, out] = narrow.matches ? [from.x + INDENT / 2, from.y + HIGH, 0] : [from.x + WIDE, from.y + HIGH / 2, (COLUMN - WIDE) / 2];
  const last = children[0].x - x - out;
  return `M${x} ${y}h${out}V${middles.at(-1)}${middles.map((middle) => `M${x + out} ${middle}h${last}`).join("")}`;
}

/** State as a shape: a dot that is up, a ring that starts, a triangle that is down. */
function mark(state) {
  if (state === "up") return s("circle", { class: "mark", cx: 14, cy: 15, r: 4.5 });
  if (state === "parked" || state === "down" || state === "dead") return s("path", { class: "mark", d: "M14 9.5l5.5 10h-11z" });
  return s("circle", { class: "mark ring", cx: 14, cy: 15, r: 4 });
}

const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
