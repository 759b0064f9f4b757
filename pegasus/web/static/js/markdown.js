// Markdown as HTML. The server makes and cleans the HTML (pegasus/web/markdown.py); this is the only place that puts HTML into the page.

import { colour } from "./colours.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { T } from "./texts.js";

const trusted = window.trustedTypes?.createPolicy("pegasus-markdown", { createHTML: (html) => html });
const MOST = 12;
const kept = new Map();

/** Renders texts in batches. `call` is that of the connection. */
export class Markdown {
  constructor(call) {
    this.call = call;
    this.waiting = [];
    this.scheduled = false;
  }

  /** Show a text in an element: as it is at first, laid out as soon as the server has answered. failed: called if it has not. */
  show(element, text, failed = () => {}) {
    const html = kept.get(text);
    if (html !== undefined) return insert(element, html);
    if (!element.dataset.source) element.textContent = text;
    element.dataset.source = String(text.length);
    this.waiting.push({ element, text, failed });
    if (!this.scheduled) {
      this.scheduled = true;
      queueMicrotask(() => this.flush());
    }
  }

  /** The HTML of one text, for drafts: nothing is kept. Resolves to null if it cannot be had. */
  async render(text) {
    try {
      return (await this.call("markdown", { texts: [text] })).html[0];
    } catch {
      return null;
    }
  }

  async flush() {
    this.scheduled = false;
    while (this.waiting.length) {
      const batch = [];
      for (let size = 0; this.waiting.length && batch.length < MOST && size < 150000; ) {
        size += this.waiting.at(-1).text.length; // the newest wish first: it is about what is in view
        batch.push(this.waiting.pop());
      }
      try {
        const { html } = await this.call("markdown", { texts: batch.map((item) => item.text) });
        batch.forEach(({ element, text }, index) => {
          if (text.length < 20000) kept.set(text, html[index]);
          insert(element, html[index]);
        });
      } catch {
        for (const { failed } of batch) failed(); // the text stays as it was written until it is shown again
      }
      if (this.waiting.length) await idle();
      for (const key of kept.keys()) {
        if (kept.size <= 500) break;
        kept.delete(key);
      }
    }
  }
}

/** Wait until the browser has nothing more urgent to do, so that laying out many texts does not hold up scrolling. */
function idle() {
  return new Promise((resolve) => (window.requestIdleCallback ? requestIdleCallback(resolve, { timeout: 300 }) : setTimeout(resolve, 30)));
}

/** The text of HTML of the server, as it is read out. */
export function plainText(html) {
  const element = document.createElement("template");
  element.innerHTML = trusted ? trusted.createHTML(html) : html;
  for (const block of element.content.querySelectorAll("p, li, pre, tr, h1, h2, h3, h4, h5, h6, br")) block.append("\n");
  return element.content.textContent.trim();
}

/** Put HTML of the server into an element, with a button to copy each block of code. */
export function insert(element, html) {
  element.innerHTML = trusted ? trusted.createHTML(html) : html;
  element.classList.add("md");
  for (const code of element.querySelectorAll("pre > code")) {
    const language = (code.className.match(/language-(\S+)/) ?? [])[1] ?? "";
    const block = code.parentElement;
    block.tabIndex = 0;
    colour(code, language);
    const frame = h("div", { class: "code" });
    block.replaceWith(frame);
    frame.append(h("div", { class: "code-head" }, h("span", {}, language), copyButton(() => code.textContent, T.copyCode)), block);
  }
  for (const table of element.querySelectorAll("table")) {
    const frame = h("div", { class: "table", tabindex: "0", role: "region", "aria-label": T.table });
    table.replaceWith(frame);
    frame.append(table);
  }
}

/** A button that copies what `read` returns. */
export function copyButton(read, label) {
  const button = h("button", { class: "icon-button small", type: "button", "aria-label": label, title: label }, icon("copy"));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(read());
    } catch {
      const area = h("textarea", { class: "sr-only", value: read() });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.replaceChildren(icon("check"));
    button.setAttribute("aria-label", T.copied);
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.setAttribute("aria-label", label);
    }, 1500);
  });
  return button;
}
