// The icons: 20 × 20, strokes of one width, drawn here so that nothing has to be loaded.

import { s } from "./dom.js";

const PATHS = {
  chat: "M3.5 5.5a2 2 0 0 1 2-2h9a2 2 0 0 1 2 2v6a2 2 0 0 1-2 2H8.5L5 16.5v-3a1.7 1.7 0 0 1-1.5-1.7z",
  conversations: "M3.5 4.5h9v6h-5L5 13v-2.5H3.5zM14.5 7.5h2v6H15V16l-2.5-2.5h-4",
  tasks: "M3.5 5.2l1.2 1.2 2-2.2M3.5 10.2l1.2 1.2 2-2.2M4 15.2h2M9.5 5.5h7M9.5 10.5h7M9.5 15.2h7",
  approvals: "M10 2.8l6 2.2v4.600c0 3.7-2.5 6.4-6 7.600-3.5-1.2-6-3.9-6-7.600V5zM7.5 10l1.8 1.8 3.300-3.600",
  memory: "M5.5 3.5h9a1 1 0 0 1 1 1v12l-5.5-3-5.5 3v-12a1 1 0 0 1 1-1zM7.5 7h5M7.5 9.8h3.5",
  skills: "M10.8 2.8 4.5 11h4.7l-1 6.2L15.5 9h-5z",
  archive: "M3.5 6.5h13v9a1 1 0 0 1-1 1h-11a1 1 0 0 1-1-1zM3.5 6.5l1.5-3h10l1.5 3M8 10h4",
  tree: "M10 3v4M10 7H5.5v3M10 7h4.5v3M10 7v3M4 10.5h3v3H4zM8.5 10.5h3v3h-3zM13 10.5h3v3h-3z",
  usage: "M3.5 16.5h13M5.5 16.5V11M10 16.5V4.5M14.5 16.5V8.5",
  channels: "M10 11.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM6.8 13.2a4.5 4.5 0 0 1 0-6.4M13.2 6.8a4.5 4.5 0 0 1 0 6.4M4.4 15.600a8 8 0 0 1 0-11.2M15.600 4.4a8 8 0 0 1 0 11.2",
  settings: "M3.5 6h7M14.5 6h2M3.5 14h2M9.5 14h7M12.5 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM7.5 16a2 2 0 1 0 0-4 2 2 0 0 0 0 4z",
  log: "M4.5 3.5h11v13h-11zM7 7h6M7 10h6M7 13h3.5",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  send: "M10 16V4.5M5.5 9 10 4.5 14.5 9",
  stop: "M6 6h8v8H6z",
  attach: "M14.5 9.5 9.300 14.7a3 3 0 0 1-4.2-4.2l5.9-5.9a2 2 0 0 1 2.8 2.8l-5.7 5.7a1 1 0 0 1-1.4-1.4l5-5",
  copy: "M7.5 7.5h8v9h-8zM4.5 12.5v-9h8",
  check: "M4.5 10.5l3.5 3.5 7.5-8",
  cross: "M5.5 5.5l9 9M14.5 5.5l-9 9",
  down: "M10 4v11.5M5.5 11 10 15.5l4.5-4.5",
  back: "M12.5 4.5 7 10l5.5 5.5",
  forward: "M7.5 4.5 13 10l-5.5 5.5",
  clock: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 6.5V10l2.5 1.5",
  undo: "M4 8.5h8a4 4 0 0 1 0 8H8.5M7 5.5l-3 3 3 3",
  edit: "M4 16h3l8.5-8.5-3-3L4 13z",
  plus: "M10 4.5v11M4.5 10h11",
  trash: "M4.5 6h11M8 6V4h4v2M6 6l.7 10.5h6.600L14 6",
  pause: "M7.5 5v10M12.5 5v10",
  play: "M7 4.5v11l8.5-5.5z",
  tool: "M12.7 3.600a4 4 0 0 0-4.2 5.600l-5 5a1.600 1.600 0 0 0 2.300 2.300l5-5a4 4 0 0 0 5.600-4.2l-2.300 2.2-2.7-.8-.8-2.7z",
  thought: "M10 3.5a5 5 0 0 0-2.8 9.100c.5.4.8.9.8 1.5v.4h4v-.4c0-.6.3-1.100.8-1.5A5 5 0 0 0 10 3.5zM8.2 17h3.600",
  sun: "M10 13.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.300 4.300l1.100 1.100M14.600 14.600l1.100 1.100M15.7 4.300l-1.100 1.100M5.4 14.600l-1.100 1.100",
  moon: "M16 11.8A6.5 6.5 0 0 1 8.2 4a6.5 6.5 0 1 0 7.8 7.8z",
  contrast: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 3v14",
  search: "M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM13 13l3.5 3.5",
  out: "M8 3.5H4.5v13H8M8.5 10H17M13.5 6.5 17 10l-3.5 3.5",
  file: "M5.5 3h6l3 3v11h-9zM11.5 3v3h3",
};

const ALIASES = { schedule: "clock" };

/** The icon of this name. It says nothing to a screen reader: the text beside it, or the button's label, does. */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" }, s("path", { d: PATHS[name] ?? PATHS[ALIASES[name]] }));
}

/** The mark of Pegasus: a wing of three strokes. */
export function wing() {
  return s(
    "svg",
    { class: "wing", viewBox: "0 0 32 32", "aria-hidden": "true" },
    s("path", { d: "M6 24c9 .8 16.5-4 20.5-16" }),
    s("path", { d: "M6 24c5.4-.7 9.8-4.4 12-11" }),
    s("path", { d: "M6 24c2.8-1.4 4.8-3.8 5.8-7.4" }),
  );
}
