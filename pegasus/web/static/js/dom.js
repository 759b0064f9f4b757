// Making elements. Text always becomes a text node: nothing that others wrote is ever parsed as HTML here (see markdown.js).

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: h("button", {class: "quiet", onclick: close}, "Close"). Properties that are null or false are left out. */
export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function s(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, item] of Object.entries(value)) element.style.setProperty(key, item);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** Make the children of `parent` those of `items`, keeping the element of each key, so that focus and scroll position stay. */
export function keepList(parent, items, keyOf, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let element = known.get(key);
    if (element) known.delete(key);
    else {
      element = make(item);
      element.dataset.key = key;
    }
    update?.(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const element of known.values()) element.remove();
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** Text from others with every character that cannot be seen, or that changes the order of writing, made visible. */
export function visible(text) {
  const parts = [];
  let end = 0;
  for (const found of String(text).matchAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\p{Cf}\u2028\u2029\u3164\uffa0\u115f\u2800]/gu)) {
    parts.push(String(text).slice(end, found.index));
    parts.push(h("span", { class: "unseen" }, `U+${found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`));
    end = found.index + found[0].length;
  }
  parts.push(String(text).slice(end));
  return parts.filter((part) => part !== "");
}

/** A name that others chose, on one line and kept apart from the direction of writing around it. */
export function name(text) {
  return h("bdi", { class: "name" }, ...visible(text));
}

/** A page with a list and a detail beside it; on a phone one of them is shown. `head` is what stands beside the title of the list. */
export function splitPage(title, head, list, detail) {
  const heading = h("header", { class: "page-head" }, h("span", { class: "h1", "aria-hidden": "true" }, title), head);
  return h("div", { class: "page split" }, h("h1", { class: "sr-only" }, title), h("section", { class: "master" }, heading, list), detail);
}

/** A part of an address as it was before it was put there. */
export function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Read a text to people who use a screen reader. */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  announcer.textContent = "";
  setTimeout(() => (announcer.textContent = text.slice(0, 1000)), 50);
}

/** Call `run` once, `delay` ms after the last call. */
export function debounced(run, delay) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), delay);
  };
}
