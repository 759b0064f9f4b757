// Everything that waits for a yes or a no, and what was answered lately.

import { h, keepList } from "../dom.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { answeredRow, approvalCard } from "./approval_card.js";

export function open(app) {
  const list = h("div", { class: "stack" });
  const none = h("div", { class: "empty" }, icon("approvals"), h("h2", {}, T.approvals.none), h("p", {}, T.approvals.noneHint));
  const rows = h("ul", { class: "rows" });
  const lately = h("section", { class: "card", hidden: true }, h("h2", {}, T.approvals.answered), rows);
  const show = () => {
    const open = [...app.state.approvals.values()];
    keepList(list, open, (notice) => notice.id, (notice) => approvalCard(app, notice));
    none.hidden = open.length > 0;
    lately.hidden = !app.state.answered.length;
    keepList(rows, app.state.answered, (notice) => notice.id, answeredRow);
  };
  const off = app.state.on("approvals", show);
  show();
  return { element: h("div", { class: "page" }, h("h1", {}, T.pages.approvals), list, none, lately), close: off };
}
