// What is worth a look, with what to do about it.

import { ask, h, put, say } from "./dom.js";
import { clock, count, rate, some, span } from "./words.js";

const KINDS = /** @type {Record<string, {title: string, advice: string}>} */ ({
  loop: { title: "Triggers itself", advice: "Each reconcile writes something that causes the next one. Write only when what is wanted differs from what is there: ensure and patch_status compare first." },
  failing: { title: "Fails again and again", advice: "It is tried again, later and later. The error says what is missing." },
  lag: { title: "A cache cannot follow", advice: "Reconciles see the past as long as this goes on." },
  late: { title: "Its own write was not seen in time", advice: "The key was reconciled though the cache did not show what it wrote. Is the cache behind, or does a selector leave the object out?" },
  hot: { title: "Reconciled very often", advice: "Many events, or a requeue without a pause. Its life shows the reasons." },
  slow: { title: "Slow reconcile", advice: "A worker is busy with it for so long. More workers help the others; a time limit ends it." },
  unchanged: { title: "Writes that change nothing", advice: "The server stored nothing new. Compare before writing: it costs a request each time." },
});

export class FindingsView {
  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.stream = stream;
    this.summary = h("span", { class: "quiet" });
    this.showOver = h("input", { type: "checkbox", checked: true, onchange: () => this.draw() });
    this.list = h("ul", { class: "findings" });
    /** @type {any[]} */
    this.found = [];
    this.looked = 0;
    this.isLooking = false;
    this.element = h("div", {}, h("div", { class: "bar" }, h("h1", {}, "Findings"), this.summary, h("label", {}, this.showOver, h("span", {}, "show what is over"))), this.list);
    this.update = () => this.look();
  }

  show() {
    this.stream.addEventListener("state", this.update);
    this.looked = 0;
    this.look();
  }

  hide() {
    this.stream.removeEventListener("state", this.update);
  }

  async look() {
    const now = Date.now();
    if (this.isLooking || now - this.looked < 400) return;
    this.isLooking = true;
    try {
      const { findings } = await ask("/api/findings");
      this.found = findings;
      this.draw();
    } catch {
      // The frame says that the server does not answer.
    }
    this.looked = Date.now();
    this.isLooking = false;
  }

  draw() {
    if (this.list.contains(document.activeElement) && document.activeElement?.matches(":focus-visible")) return;
    if (String(document.getSelection()) !== "") return;
    const open = this.found.filter((it) => !it.isOver).length;
    say(this.summary, open ? `${some(open, "thing")} worth a look` : "nothing is wrong now");
    const shown = this.found.filter((it) => this.showOver.checked || !it.isOver).slice(0, 100);
    put(this.list, shown.map((it) => this.card(it)), shown.length === 0 && h("li", { class: "card empty" }, "Nothing was found: no loops, no failures, no lag. The page looks for them while it listens."));
  }

  /** @param {any} it */
  card(it) {
    const { title, advice } = KINDS[it.kind] ?? { title: it.kind, advice: "" };
    const life = it.key && `#/keys?${new URLSearchParams({ controller: it.controller, key: it.key, open: `${it.controller}\n${it.key}` })}`;
    const resource = it.object && it.resource && it.kind !== "lag" ? `#/objects?${new URLSearchParams({ resource: it.resource, key: it.object, tab: "fields" })}` : "";
    const seen = it.isOver ? `over since ${clock(it.last)}` : it.kind === "lag" ? "now" : this.stream.now() - it.last < 1000 ? "just now" : `last ${span(this.stream.now() - it.last)} ago`;
    return h("li", { class: `card finding${it.isOver ? " over" : ""}`, "data-kind": it.kind },
      h("div", { class: "head" }, h("h2", {}, it.isOver ? title : `⚠ ${title}`), it.key && h("span", {}, h("strong", {}, it.key), ` by ${it.controller}`), it.kind === "lag" && h("strong", {}, it.resource + (it.object ? ` in ${it.object}` : "")), h("span", { class: "tag" }, seen)),
      h("p", {}, sentence(it)), h("p", { class: "advice" }, advice),
      h("div", { class: "actions" }, life && h("a", { href: life }, "Its life"), resource && h("a", { href: resource }, `Who writes ${it.object}`), it.kind === "lag" && h("a", { href: "#/loop?stage=reflector" }, "Lists and watches")));
  }
}

/** @param {any} it */
function sentence(it) {
  const fields = it.fields.length ? [" in ", it.fields.map((/** @type {string} */ field, /** @type {number} */ n) => [n ? ", " : "", h("code", {}, field)]).flat()].flat() : [];
  switch (it.kind) {
    case "loop": return h("span", {}, `Nothing but its own writes to ${it.resource} ${it.object}`, fields, ` caused the last ${count(it.times)} reconciles.`, it.writer ? [" Written by ", h("code", {}, it.writer), "."] : "");
    case "failing": return h("span", {}, `${some(it.times, "failure")} in a row: `, h("span", { class: "bad" }, it.error ?? ""));
    case "lag": return h("span", {}, it.error ? h("span", { class: "bad" }, it.error) : `Its oldest change has waited for ${span(it.millis)}.`, it.error ? ` ${some(it.times, "failure")} so far.` : "");
    case "late": return `Held for ${span(it.millis)}, ${some(it.times, "time")}.`;
    case "hot": return `${rate(it.rate)} at the time, seen ${some(it.times, "time")}.`;
    case "slow": return `The last one took ${span(it.millis)}; ${some(it.times, "time")} in all.`;
    case "unchanged": return h("span", {}, `${some(it.times, "write")} to ${it.resource} ${it.object} left the object as it was.`);
    default: return "";
  }
}
