// What is worth a look, with what to do about it.

import { ask, h, patch, say } from "./dom.js";
import { Follow } from "./follow.js";
import { clock, count, rate, some, span } from "./words.js";

/** What is shown at most. */
const MOST = 100;

/** What each kind is called, what to do about it, and whether it can wait. */
const KINDS = /** @type {Record<string, {title: (it: any) => string, advice: string, isMild?: boolean}>} */ ({
  loop: { title: (it) => `${it.controller} triggers itself on ${it.key}`, advice: "Each reconcile writes something that causes the next one. Write only if the desired state differs from the current one: ensure and patch_status compare first." },
  pingPong: { title: (it) => `${it.controller} and another writer undo each other in ${it.key}`, advice: "Both want another value. Let one of them own the field: leave it out of what the other writes, or use server-side apply, which reports the conflict." },
  failing: { title: (it) => `${it.controller} fails again and again on ${it.key}`, advice: "Retried with exponential backoff. The error says what is missing." },
  terminal: { title: (it) => `${it.controller} has given up on ${it.key}`, advice: "A terminal error: the key is not retried. It is reconciled again when one of its objects changes, or at the next resync." },
  lag: { title: (it) => `The cache of ${it.resource}${it.object ? ` in ${it.object}` : ""} is behind`, advice: "Reconciles see a stale state until it catches up." },
  late: { title: (it) => `${it.controller} did not observe its own write to ${it.key} in time`, advice: "The key was reconciled though the cache had not observed what it wrote. Is the cache behind, or does a selector leave the object out?", isMild: true },
  hot: { title: (it) => `${it.controller} reconciles ${it.key} very often`, advice: "Many events, or a requeue without a pause. Its life shows the reasons.", isMild: true },
  slow: { title: (it) => `${it.controller} is slow on ${it.key}`, advice: "A worker is busy with it for so long. More workers help the others; a time limit ends it.", isMild: true },
  unchanged: { title: (it) => `${it.controller} writes to ${it.key} what is there already`, advice: "The server stored nothing new. Compare before writing: it costs a request each time.", isMild: true },
});

export class FindingsView {
  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.stream = stream;
    this.summary = h("p", { class: "ask" });
    this.showOver = h("input", { type: "checkbox", checked: true, onchange: () => this.draw() });
    this.list = h("ul", { class: "findings" });
    /** @type {any[]} */
    this.found = [];
    this.element = h("div", { class: "narrow" },
      h("div", { class: "head" }, h("div", {}, h("h1", {}, "Findings"), this.summary), h("label", {}, this.showOver, h("span", {}, "show resolved ones"))), this.list);
    this.follow = new Follow(stream, () => this.look());
  }

  show() {
    this.follow.start();
  }

  hide() {
    this.follow.stop();
  }

  async look() {
    try {
      this.found = (await ask("/api/findings")).findings;
    } catch {
      // The frame says that the server does not answer.
      return;
    }
    this.draw();
  }

  draw() {
    const open = this.found.filter((it) => !it.isOver).length;
    say(this.summary, open ? `What is wrong: ${some(open, "thing")} worth a look.` : "Nothing is wrong now.");
    const shown = this.found.filter((it) => this.showOver.checked || !it.isOver).slice(0, MOST);
    patch(this.list, shown.map((it) => this.card(it)), shown.length === 0 && h("li", { class: "card finding all-well" }, h("span", { class: "sign", "aria-hidden": "true" }, "✓"), h("h2", {}, "No loops, no failures, no lag"), h("p", { class: "advice" }, "The page looks for them from when the controllers start.")));
  }

  /** @param {any} it */
  card(it) {
    const { title, advice, isMild } = KINDS[it.kind] ?? { title: () => it.kind, advice: "" };
    const life = it.key && `#/keys?${new URLSearchParams({ controller: it.controller, key: it.key, open: `${it.controller}\n${it.key}` })}`;
    const resource = it.object && it.resource && it.kind !== "lag" ? `#/objects?${new URLSearchParams({ resource: it.resource, key: it.object, tab: "fields" })}` : "";
    const ago = this.stream.now() - it.last;
    const seen = it.isOver ? `resolved, last seen ${clock(it.last).slice(0, 8)}` : it.kind === "lag" || ago < 2000 ? "now" : `${span(ago)} ago`;
    return h("li", { class: `card finding${it.isOver ? " over" : isMild ? " mild" : ""}`, "data-kind": it.kind, "data-key": [it.kind, it.controller, it.key, it.resource, it.object, it.cache].join("\n") },
      h("span", { class: "sign", "aria-hidden": "true" }, it.isOver ? "✓" : isMild ? "i" : "!"),
      h("div", {}, h("div", { class: "title" }, h("h2", {}, title(it)), h("span", { class: `tag ${it.isOver ? "" : isMild ? "warn" : "bad"}` }, seen)),
        h("p", { class: "said" }, sentence(it)), h("p", { class: "advice" }, advice),
        h("div", { class: "actions" }, life && h("a", { href: life }, "Show its life"), resource && h("a", { href: resource }, `Who writes ${it.object}`), it.kind === "lag" && h("a", { href: "#/loop?stage=reflector" }, "Lists and watches"))));
  }
}

/** @param {any} it @returns {(Node | string)[]} */
function sentence(it) {
  const fields = it.fields.map((/** @type {string} */ field, /** @type {number} */ n) => [n ? ", " : " in ", h("code", {}, field)]).flat();
  switch (it.kind) {
    case "loop": return [`Nothing but its own writes to ${it.resource} ${it.object}`, ...fields, ` caused the last ${count(it.times)} reconciles.`, ...(it.writer ? [" Written by ", h("code", {}, it.writer), "."] : [])];
    case "pingPong": return [h("code", {}, it.writer ?? it.controller), ` has written ${it.resource} ${it.object}`, ...fields, ` ${some(it.times + 1, "time")} in a row, and `, ...(it.writer ? writers(it.others) : ["another writer"]), " changed it back each time.", ...(!it.writer && it.others.length ? [" Field managers: ", ...writers(it.others), "."] : [])];
    case "terminal": return [h("span", { class: "bad" }, it.error ?? ""), it.times > 1 ? ` ${some(it.times, "time")} so far.` : ""];
    case "failing": return [`${some(it.times, "failure")} in a row: `, h("span", { class: "bad" }, it.error ?? "")];
    case "lag": return it.error ? [h("span", { class: "bad" }, it.error), ` ${some(it.times, "failure")} so far.`] : [`Its oldest change has waited for ${span(it.millis)}.`];
    case "late": return [`Held for ${span(it.millis)}, ${some(it.times, "time")}.`];
    case "hot": return [`Reconciled ${rate(it.rate)}, measured over ${span(it.millis)}.`];
    case "slow": return [`The last one took ${span(it.millis)}; ${some(it.times, "time")} in all.`];
    case "unchanged": return [`${some(it.times, "write")} to ${it.resource} ${it.object} left the object as it was.`];
    default: return [];
  }
}

/** @param {string[]} others @returns {(Node | string)[]} */
function writers(others) {
  if (others.length === 0) return ["another writer"];
  return others.map((name, n) => [n ? ", " : "", h("code", {}, name)]).flat();
}
