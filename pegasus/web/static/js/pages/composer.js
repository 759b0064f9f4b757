// The field to write in: sends with Enter, completes /commands, takes files by button, paste and drop.

import { fill, h, name } from "../dom.js";
import { bytes } from "../format.js";
import { icon } from "../icons.js";
import { T } from "../texts.js";

const LIMIT = 700000; // bytes of files in one message: base64 adds a third, and a frame has 1 MiB
const PICTURE = 1600; // pixels that a larger picture is reduced to
let unsent = "";

export class Composer {
  constructor(app, say, interrupt) {
    this.app = app;
    this.say = say;
    this.interrupt = interrupt;
    this.files = [];
    this.choices = [];
    this.chosen = -1;
    if (app.shared) {
      unsent = app.shared;
      app.shared = "";
    }
    this.field = h("textarea", {
      id: "write", rows: "1", "aria-label": T.chat.write, placeholder: T.chat.placeholder(app.connection.agent), dir: "auto",
      role: "combobox", "aria-expanded": "false", "aria-controls": "choices", "aria-autocomplete": "list", enterkeyhint: "send", value: unsent,
    });
    this.menu = h("div", { id: "choices", class: "choices", role: "listbox", "aria-label": T.chat.commands, hidden: true });
    this.attached = h("div", { class: "attached", hidden: true });
    this.picker = h("input", { type: "file", multiple: true, hidden: true, tabindex: "-1", onchange: () => this.attach([...this.picker.files]) });
    this.stop = h("button", { class: "stop", type: "button", hidden: true, title: T.chat.stopHint, onclick: () => this.interrupt() }, icon("stop"), T.chat.stop);
    this.button = h("button", { class: "send", type: "submit", "aria-label": T.chat.send, title: T.chat.send }, icon("send"));
    this.element = h(
      "form",
      { class: "composer" },
      this.menu,
      this.attached,
      h(
        "div",
        { class: "composer-row" },
        h("button", { class: "icon-button", type: "button", "aria-label": T.chat.attach, title: T.chat.attach, onclick: () => this.picker.click() }, icon("attach")),
        this.picker,
        this.field,
        this.stop,
        this.button,
      ),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("input", () => {
      unsent = this.field.value;
      this.complete();
      this.grow();
    });
    this.field.addEventListener("blur", () => setTimeout(() => this.showChoices([]), 150));
    this.field.addEventListener("paste", (event) => event.clipboardData.files.length && (event.preventDefault(), this.attach([...event.clipboardData.files])));
    this.element.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.element.classList.add("over");
    });
    this.element.addEventListener("dragleave", () => this.element.classList.remove("over"));
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.element.classList.remove("over");
      this.attach([...event.dataTransfer.files]);
    });
  }

  showStop(isAnswering) {
    this.stop.hidden = !isAnswering;
  }

  send() {
    const text = this.field.value.trim();
    if (!text && !this.files.length) return;
    if (!this.say(text, this.files)) return;
    this.files = [];
    this.showFiles();
    this.field.value = unsent = "";
    this.showChoices([]);
    this.grow();
    this.field.focus();
  }

  grow() {
    if (CSS.supports("field-sizing", "content")) return;
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight, 220)}px`;
  }

  key(event) {
    if (event.isComposing) return;
    if (this.choices.length) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        this.choose((this.chosen + step + this.choices.length) % this.choices.length);
        return;
      }
      if (event.key === "Escape") {
        event.preventDefault();
        this.showChoices([]);
        return;
      }
      if (event.key === "Tab" || (event.key === "Enter" && this.chosen >= 0 && this.choices[this.chosen].value !== this.field.value.trim())) {
        event.preventDefault();
        this.take(this.choices[Math.max(0, this.chosen)]);
        return;
      }
    }
    if (event.key === "Escape" && !this.stop.hidden) {
      event.preventDefault();
      this.interrupt();
      return;
    }
    const isTouch = matchMedia("(pointer: coarse)").matches;
    if (event.key === "Enter" && !event.shiftKey && !isTouch) {
      event.preventDefault();
      this.send();
    }
  }

  // ------------------------------------------------------------------ commands

  async complete() {
    const text = this.field.value;
    if (!text.startsWith("/") || text.includes("\n")) return this.showChoices([]);
    const known = await this.known();
    if (this.field.value !== text) return null;
    const { commands, skills, models } = known;
    if (text.startsWith("/model ")) {
      return this.showChoices([...models, "default"].map((model) => ({ value: `/model ${model}`, hint: "" })).filter(({ value }) => value.startsWith(text)));
    }
    const all = [...commands.map(({ name: value, description }) => ({ value, hint: description })), ...skills.map((skill) => ({ value: `/${skill.name}`, hint: skill.description, isSkill: true }))];
    return this.showChoices(text.includes(" ") ? [] : all.filter(({ value }) => value.startsWith(text)));
  }

  async known() {
    const isOld = !this.knownAt || Date.now() - this.knownAt > 30000;
    if (isOld) {
      try {
        this.completions = await this.app.call("completions");
        this.knownAt = Date.now();
      } catch {
        // offered when there is a connection
      }
    }
    return this.completions ?? { commands: [], skills: [], models: [] };
  }

  showChoices(choices) {
    this.choices = choices.slice(0, 12);
    this.menu.hidden = !this.choices.length;
    this.field.setAttribute("aria-expanded", String(!this.menu.hidden));
    fill(
      this.menu,
      this.choices.map((choice, index) =>
        h("div", { class: "choice", role: "option", id: `choice-${index}`, onpointerdown: (event) => (event.preventDefault(), this.take(choice)) }, h("span", { class: "mono" }, choice.value), h("span", { class: "hint" }, choice.hint)),
      ),
    );
    this.choose(this.choices.length ? 0 : -1);
  }

  choose(index) {
    this.chosen = index;
    [...this.menu.children].forEach((child, place) => child.setAttribute("aria-selected", String(place === index)));
    this.menu.children[index]?.scrollIntoView({ block: "nearest" });
    if (index < 0) this.field.removeAttribute("aria-activedescendant");
    else this.field.setAttribute("aria-activedescendant", `choice-${index}`);
  }

  take(choice) {
    this.field.value = unsent = `${choice.value} `;
    this.showChoices([]);
    this.field.focus();
    if (choice.value === "/model") this.complete();
  }

  // ------------------------------------------------------------------ files

  async attach(files) {
    this.picker.value = "";
    for (const file of files) {
      const content = await reduced(file);
      const size = this.files.reduce((sum, other) => sum + other.data.length * 0.75, content.size);
      if (size > LIMIT) {
        this.app.notify(T.chat.tooLarge(file.name, bytes(LIMIT)), true);
        continue;
      }
      this.files.push({ name: file.name || "file", mime: content.type || "application/octet-stream", data: await base64(content) });
    }
    this.showFiles();
    this.field.focus();
  }

  showFiles() {
    this.attached.hidden = !this.files.length;
    fill(
      this.attached,
      this.files.map((file) =>
        h("span", { class: "file" }, icon("file"), name(file.name), h("button", { class: "icon-button small", type: "button", "aria-label": T.chat.remove(file.name), onclick: () => ((this.files = this.files.filter((other) => other !== file)), this.showFiles()) }, icon("cross"))),
      ),
    );
  }
}

/** A picture that is too large to send, made smaller; any other file as it is. */
async function reduced(file) {
  if (!/^image\/(png|jpeg|webp)$/.test(file.type) || file.size < LIMIT / 2) return file;
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.min(1, PICTURE / Math.max(picture.width, picture.height));
    const canvas = new OffscreenCanvas(Math.round(picture.width * scale), Math.round(picture.height * scale));
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await canvas.convertToBlob({ type: "image/jpeg", quality: 0.85 });
  } catch {
    return file;
  }
}

function base64(content) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(content);
  });
}
