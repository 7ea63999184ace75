// The frame: views, their addresses, the theme, the keyboard.

import { h, put, say } from "./dom.js";
import { FindingsView } from "./findings.js";
import { KeysView } from "./keys.js";
import { LoopView } from "./loop.js";
import { ObjectsView } from "./objects.js";
import { PlayView } from "./play.js";
import { Stream } from "./stream.js";

/** @typedef {{element: HTMLElement, show: (query: URLSearchParams) => void, hide: () => void}} View */

const stream = new Stream();
const main = /** @type {HTMLElement} */ (document.getElementById("view"));
const VIEWS = /** @type {{name: string, label: string, make: () => View}[]} */ ([
  { name: "loop", label: "The loop", make: () => new LoopView(stream) },
  { name: "keys", label: "Keys", make: () => new KeysView(stream) },
  { name: "objects", label: "Objects", make: () => new ObjectsView(stream) },
  { name: "findings", label: "Findings", make: () => new FindingsView(stream) },
  { name: "play", label: "Play", make: () => new PlayView(stream) },
]);
/** @type {Map<string, View>} */
const made = new Map();
/** @type {View | null} */
let shown = null;

const badge = h("span", { class: "badge", hidden: true });
const links = new Map(VIEWS.map((view) => [view.name, h("a", { href: `#/${view.name}` }, view.label, view.name === "findings" && badge)]));
put(/** @type {Element} */ (document.getElementById("nav")), [...links.values()]);

const status = h("span", { class: "status", role: "status", "data-is": "connecting" }, "connecting");
const theme = h("button", { onclick: turnTheme });
const help = h("button", { onclick: () => keys.showModal(), "aria-label": "Keyboard shortcuts" }, "?");
put(/** @type {Element} */ (document.getElementById("tools")), status, theme, help);
const keys = h("dialog", { "aria-label": "Keyboard shortcuts" },
  h("h2", {}, "Keyboard"),
  h("ul", {}, VIEWS.map((view, n) => h("li", {}, h("kbd", {}, n + 1), ` ${view.label}`)),
    h("li", {}, h("kbd", {}, "/"), " search"), h("li", {}, h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " ", h("kbd", {}, "+"), " ", h("kbd", {}, "−"), " move and zoom the time line of keys"), h("li", {}, h("kbd", {}, "Esc"), " closes the story of a key"), h("li", {}, h("kbd", {}, "?"), " this list")),
  h("form", { method: "dialog" }, h("button", {}, "Close")));
document.body.append(keys);

function route() {
  const [path, query] = (location.hash.slice(2) || "loop").split("?");
  const view = VIEWS.find((it) => it.name === path) ?? VIEWS[0];
  let next = made.get(view.name);
  if (!next) made.set(view.name, (next = view.make()));
  for (const [name, link] of links) {
    if (name === view.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (shown !== next) {
    shown?.hide();
    put(main, next.element);
    shown = next;
    document.title = `${view.label} · Setpoint`;
    scrollTo(0, 0);
  }
  next.show(new URLSearchParams(query));
}

function turnTheme() {
  const order = ["", "dark", "light"];
  const next = order[(order.indexOf(document.documentElement.dataset.theme ?? "") + 1) % 3];
  setTheme(next);
  try {
    localStorage.setItem("setpoint-theme", next);
  } catch {
    // A browser that keeps nothing shows the theme all the same.
  }
}

/** @param {string} name */
function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  const [sign, words] = name === "dark" ? ["☾", "dark"] : name === "light" ? ["☀", "light"] : ["◐", "that of the system"];
  say(theme, sign);
  theme.title = `Theme: ${words}`;
  theme.setAttribute("aria-label", theme.title);
  window.dispatchEvent(new Event("themechange"));
}

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, dialog")) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view && !links.get(view.name).hidden) location.hash = `#/${view.name}`;
  else if (event.key === "?") keys.showModal();
  else if (event.key === "/") /** @type {HTMLElement | null} */ (main.querySelector("input[data-main]"))?.focus();
  else return;
  event.preventDefault();
});

const WORDS = { live: "live", connecting: "connecting", reconnecting: "connecting again", refused: "refused", asleep: "asleep" };
const notice = /** @type {HTMLElement} */ (document.getElementById("notice"));
stream.addEventListener("status", () => {
  status.dataset.is = stream.status;
  say(status, /** @type {Record<string, string>} */ (WORDS)[stream.status]);
  notice.hidden = ["live", "asleep"].includes(stream.status);
  if (stream.status === "reconnecting") say(notice, "The server does not answer. The page shows the last known state, and reconnects by itself.");
  if (stream.status === "refused") say(notice, "The server refused the connection. The page retries every few seconds; reload it to enter another token.");
});
stream.addEventListener("state", () => {
  const open = stream.state.findings;
  badge.hidden = open === 0;
  say(badge, String(open));
  const play = links.get("play");
  play.hidden = false;
  play.textContent = stream.state.canPlay ? "Play" : "Simulations";
});
window.addEventListener("hashchange", route);
try {
  setTheme(localStorage.getItem("setpoint-theme") ?? "");
} catch {
  setTheme("");
}
route();
