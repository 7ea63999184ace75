// Makes elements. Text is always text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, any>} Props
 */

/** @param {Element} element @param {Props} props @param {(Child | Child[])[]} children */
function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    // As properties, so that they can be handed on: see patch.
    if (name.startsWith("on")) /** @type {any} */ (element)[name] = value;
    else if (name === "value" || name === "checked" || name === "selected" || name === "disabled" || name === "hidden") {
      /** @type {any} */ (element)[name] = value;
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function nodes(children) {
  const found = [];
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    found.push(child instanceof Node ? child : String(child));
  }
  return found;
}

/**
 * An element of HTML.
 * @param {string} tag @param {Props} [props] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * An element of SVG.
 * @param {string} tag @param {Props} [props] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Puts children in the place of what is there. @param {Element} element @param {...(Child | Child[])} children */
export function put(element, ...children) {
  element.replaceChildren(...nodes(children));
}

const HANDLERS = ["onclick", "onchange", "oninput", "onkeydown"];

/**
 * Makes what is there like the children, and leaves alone what is like them already: who has the focus keeps it, a selection stays, and a
 * click in the middle of it arrives. Children with the same `data-key` are the same. It is for what nobody else keeps: put is for the rest.
 * @param {Element} element @param {...(Child | Child[])} children
 */
export function patch(element, ...children) {
  const wanted = nodes(children).map((it) => (typeof it === "string" ? document.createTextNode(it) : it));
  const key = (/** @type {Node} */ node) => (node instanceof HTMLElement ? node.dataset.key : undefined);
  /** @type {Map<string | undefined, Node>} */
  const keyed = new Map([...element.childNodes].filter(key).map((node) => [key(node), node]));
  wanted.forEach((node, n) => {
    const at = element.childNodes[n] ?? null;
    const there = key(node) ? keyed.get(key(node)) : at && !key(at) ? at : undefined;
    if (!there || !become(there, node)) element.insertBefore(node, at);
    else if (there !== at) element.insertBefore(there, at);
  });
  while (element.childNodes.length > wanted.length) element.lastChild?.remove();
}

/** Makes one node like another, if it is of the same kind. @param {Node} there @param {Node} node */
function become(there, node) {
  if (there.nodeName !== node.nodeName) return false;
  if (!(there instanceof Element && node instanceof Element)) {
    if (there.nodeValue !== node.nodeValue) there.nodeValue = node.nodeValue;
    return true;
  }
  for (const { name } of [...there.attributes]) if (name !== "style" && !node.hasAttribute(name)) there.removeAttribute(name);
  for (const { name, value } of node.attributes) if (there.getAttribute(name) !== value) there.setAttribute(name, value);
  for (const name of HANDLERS) /** @type {any} */ (there)[name] = /** @type {any} */ (node)[name];
  patch(there, [...node.childNodes]);
  return true;
}

/** Sets a text if it is another one: screen readers and selections are left alone. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A table with a head. A cell is text, or what goes into it. It scrolls by itself when it is too wide, and can be reached by keyboard for that.
 * @param {string} caption @param {string[]} head @param {(Child | Child[])[][]} rows @param {string} [empty]
 */
export function table(caption, head, rows, empty = "Nothing.") {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "hidden-text" }, caption),
      h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, Array.isArray(cell) ? cell : [cell])))))));
}

/** The JSON of a path; an error says why. @param {string} path @param {RequestInit} [options] */
export async function ask(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(body.error || `${answer.status} ${answer.statusText}`), { status: answer.status });
  return body;
}
