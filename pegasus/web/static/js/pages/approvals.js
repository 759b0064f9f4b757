// Everything that waits for a yes or a no, and what was answered lately.

import { h, keepList } from "../dom.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";
import { answeredRow, approvalCard, grantRow } from "./approval_card.js";

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
  const grants = h("ul", { class: "rows" });
  const granted = h("section", { class: "card", hidden: true }, h("h2", {}, T.approvals.granted), grants);
  const revoke = async (id) => {
    try {
      await app.connection.call("approvals.revoke", { id });
    } catch (error) {
      app.failed(error);
    }
    await lookAtGrants();
  };
  const lookAtGrants = async () => {
    try {
      const found = (await app.connection.call("approvals.granted")).granted;
      granted.hidden = !found.length;
      keepList(grants, found, (grant) => grant.id, (grant) => grantRow(grant, revoke));
    } catch {
      // asked again with the next change
    }
  };
  const off = app.state.on("approvals", () => {
    show();
    lookAtGrants();
  });
  show();
  lookAtGrants();
  return { element: h("div", { class: "page" }, h("h1", {}, T.pages.approvals), list, none, granted, lately), close: off };
}
