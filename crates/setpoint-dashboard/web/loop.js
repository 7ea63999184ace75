// The loop as a picture, with what each stage does now.

import { h, put, s, say } from "./dom.js";
import { Panel } from "./stage.js";
import { Transport } from "./transport.js";
import { count, rate, some, span } from "./words.js";

/** What a stage shows: a big number with its unit, a line below, and what is wrong. @typedef {{big: string, unit: string, more: string, trouble?: string}} Shown */

const STAGES = [
  { id: "server", place: "1 / 2 / 2 / 7", number: "", name: "API server", what: "objects, each change at a resourceVersion", curve: "writes" },
  { id: "reflector", place: "3 / 2", number: "1", name: "Reflector", what: "lists, then watches, forever", curve: "received" },
  { id: "fifo", place: "3 / 4", number: "2", name: "DeltaFIFO", what: "what changed, by key, in order", curve: "applied" },
  { id: "indexer", place: "3 / 6", number: "3", name: "Indexer", what: "the cache, at one version", curve: "applied" },
  { id: "informer", place: "5 / 6", number: "4", name: "Informer", what: "delivers changes to handlers", curve: "added" },
  { id: "queue", place: "5 / 4", number: "5", name: "Work queue", what: "keys to reconcile", curve: "added" },
  { id: "controller", place: "5 / 2", number: "6", name: "Controller", what: "no key is processed concurrently", curve: "reconciles" },
];

const ARROWS = [
  { place: "2 / 2", to: "down", text: "list, watch", total: "received" },
  { place: "3 / 3", to: "right", text: "changes", total: "received" },
  { place: "3 / 5", to: "right", text: "batches", total: "applied" },
  { place: "4 / 6", to: "down", text: "delivered", total: "applied" },
  { place: "5 / 5", to: "left", text: "keys", total: "added" },
  { place: "5 / 3", to: "left", text: "keys", total: "reconciles" },
];

export class LoopView {
  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.stream = stream;
    this.stages = STAGES.map((stage) => new Card(stage, () => this.open(stage.id)));
    this.arrows = ARROWS.map((arrow) => new Arrow(arrow));
    const rail = h("div", { class: "rail", "aria-hidden": "true" }, h("span", {}, "writes"));
    rail.style.gridArea = "1 / 1 / 6 / 2";
    const [server, ...rest] = this.stages;
    const picture = h("div", { class: "picture", role: "group", "aria-label": "The path of a change" }, rail, server.element);
    // In the order of the path: so a narrow page shows it from top to bottom.
    rest.forEach((stage, n) => picture.append(this.arrows[n].element, stage.element));
    this.panel = new Panel(stream);
    this.caption = h("p", { class: "ask" });
    this.verdict = h("div", { class: "verdict", role: "status" });
    this.transport = new Transport(stream);
    this.element = h("div", {},
      h("div", { class: "head" }, h("div", {}, h("h1", {}, "The loop"), this.caption), this.transport.element, this.verdict),
      picture, this.panel.element);
    /** What was said about it last. */
    this.judged = "";
    this.update = () => this.draw();
  }

  /** @param {URLSearchParams} query */
  show(query) {
    this.stream.addEventListener("state", this.update);
    this.transport.show();
    this.opened = query.get("stage") ?? "";
    for (const stage of this.stages) stage.element.setAttribute("aria-pressed", String(stage.id === this.opened));
    this.panel.open(this.opened, query);
    if (this.stream.state) this.draw();
  }

  hide() {
    this.stream.removeEventListener("state", this.update);
    this.transport.hide();
    this.panel.close();
  }

  /** @param {string} id */
  open(id) {
    location.hash = this.opened === id ? "#/loop" : `#/loop?stage=${id}`;
  }

  draw() {
    const { stream } = this;
    const shown = numbers(stream);
    for (const stage of this.stages) stage.draw(shown[stage.id], stream.curve(stage.curve));
    for (const arrow of this.arrows) arrow.draw(stream);
    const { totals } = stream.state;
    const missed = totals.missed ? `, ${count(totals.missed)} missed` : "";
    say(this.caption, `${some(stream.state.caches.length, "cache")}, ${some(stream.state.queues.length, "queue")}, ${rate(stream.rate("facts"))} facts${missed}. Choose a stage to see what is in it.`);
    this.judge(shown);
    this.panel.draw();
  }

  /** Says where it is stuck, if it is. @param {Record<string, Shown>} shown */
  judge(shown) {
    const stuck = STAGES.filter((stage) => shown[stage.id].trouble).map((stage) => [`#/loop?stage=${stage.id}`, `${stage.name}: ${shown[stage.id].trouble}`]);
    const { findings } = this.stream.state;
    if (findings) stuck.push(["#/findings", some(findings, "finding")]);
    const said = JSON.stringify(stuck);
    if (said === this.judged) return;
    this.judged = said;
    put(this.verdict, stuck.length ? stuck.map(([href, text]) => h("a", { href }, `⚠ ${text}`)) : h("span", { class: "fine" }, "✓ Everything flows"));
  }
}

/** @param {import("./stream.js").Stream} stream @returns {Record<string, Shown>} */
function numbers(stream) {
  const { state } = stream;
  const scopes = state.caches.flatMap((/** @type {any} */ cache) => cache.scopes);
  const sum = (/** @type {any[]} */ list, /** @type {string} */ name) => list.reduce((all, it) => all + (it[name] ?? 0), 0);
  const handlers = state.caches.flatMap((/** @type {any} */ cache) => cache.handlers);
  const { controllers, caches } = state.totals;
  const failing = scopes.filter((/** @type {any} */ scope) => scope.trouble).length;
  const unsynced = state.caches.filter((/** @type {any} */ cache) => !cache.hasSynced).length;
  const lag = Math.max(0, ...caches.map((/** @type {any} */ cache) => cache.lagMs));
  const running = controllers.reduce((/** @type {number} */ all, /** @type {any} */ it) => all + it.running.length, 0);
  const workers = sum(state.controllers, "workers");
  const slowest = Math.max(0, ...controllers.map((/** @type {any} */ it) => it.p99Ms ?? 0));
  const failed = stream.rate("failed");
  const late = sum(controllers, "late");
  const unchanged = stream.rate("unchanged");
  const backlog = sum(handlers, "backlog");
  const [objects, ready] = [sum(state.caches, "objects"), sum(state.queues, "ready")];
  return {
    server: { big: rate(stream.rate("writes")), unit: "writes by controllers", more: `${count(sum(controllers, "writes"))} so far, ${count(sum(controllers, "refused"))} refused`, trouble: unchanged > 0 ? `${rate(unchanged)} of the writes changed nothing` : "" },
    reflector: { big: count(scopes.length), unit: scopes.length === 1 ? "watch" : "watches", more: `${rate(stream.rate("received"))} changes`, trouble: failing ? `${some(failing, "watch", "watches")} failing` : "" },
    fifo: { big: count(sum(scopes, "pending")), unit: "pending", more: `watch to cache in ${span(lag)} at most`, trouble: lag > 2000 ? "a cache lags" : "" },
    indexer: { big: count(objects), unit: objects === 1 ? "object" : "objects", more: `in ${some(state.caches.length, "cache")}`, trouble: unsynced ? `${unsynced} not synced` : "" },
    informer: { big: count(backlog), unit: "not delivered yet", more: some(handlers.length, "handler"), trouble: backlog > 1000 ? "a handler is slow" : "" },
    queue: { big: count(ready), unit: "ready", more: `${count(sum(state.queues, "waiting"))} waiting, ${count(sum(state.queues, "held"))} held, ${rate(stream.rate("added"))} added`, trouble: late ? `${some(late, "key")} held too long` : "" },
    controller: { big: rate(stream.rate("reconciles")), unit: "reconciles", more: `${count(running)} running${workers ? ` on ${some(workers, "worker")}` : ""}, slowest ${span(slowest)}`, trouble: failed > 0 ? `${rate(failed)} failing` : "" },
  };
}

class Card {
  /** @param {any} stage @param {() => void} open */
  constructor(stage, open) {
    this.id = stage.id;
    this.curve = stage.curve;
    this.big = h("span", {}, "–");
    this.unit = h("span", { class: "unit" });
    this.more = h("span", { class: "more" });
    this.trouble = h("span", { class: "trouble" });
    this.line = s("polyline", { class: "spark", points: "" });
    this.area = s("polygon", { class: "spark-area", points: "" });
    const name = h("span", { class: "name" }, stage.name);
    const what = h("span", { class: "what" }, stage.what);
    const big = h("span", { class: "big" }, this.big, " ", this.unit);
    const isServer = stage.id === "server";
    const body = isServer
      ? [h("span", { class: "row-of" }, name, what, this.trouble, big, this.more)]
      : [h("span", { class: "top" }, h("span", { class: "number", "aria-hidden": "true" }, stage.number), name, this.trouble), what, big, this.more,
        s("svg", { viewBox: "0 0 60 20", preserveAspectRatio: "none", "aria-hidden": "true" }, this.area, this.line)];
    this.element = h("button", { class: isServer ? "stage server" : "stage", id: `stage-${stage.id}`, "aria-pressed": "false", onclick: open }, body);
    this.element.style.gridArea = stage.place;
  }

  /** @param {Shown} shown @param {number[]} curve */
  draw(shown, curve) {
    say(this.big, shown.big);
    say(this.unit, shown.unit);
    say(this.more, shown.more);
    say(this.trouble, shown.trouble ? `⚠ ${shown.trouble}` : "");
    this.element.classList.toggle("troubled", !!shown.trouble);
    const most = Math.max(1, ...curve);
    const at = 60 - curve.length + 1;
    const points = curve.map((n, x) => `${at + x},${19 - (17 * n) / most}`);
    this.line.setAttribute("points", points.length > 1 ? points.join(" ") : "");
    this.area.setAttribute("points", points.length > 1 ? [`${at},20`, ...points, "60,20"].join(" ") : "");
  }
}

class Arrow {
  /** @param {{place: string, to: string, text: string, total: string}} arrow */
  constructor(arrow) {
    this.total = arrow.total;
    this.last = 0;
    this.element = h("div", { class: `arrow ${arrow.to}`, "aria-hidden": "true" }, h("span", {}, arrow.text), h("i", {}));
    this.element.style.gridArea = arrow.place;
    this.element.addEventListener("animationend", () => this.element.classList.remove("flows"));
  }

  /** @param {import("./stream.js").Stream} stream */
  draw(stream) {
    const total = (stream.latest ?? stream.samples.at(-1))?.values.get(this.total) ?? 0;
    if (total > this.last && this.last > 0) this.element.classList.add("flows");
    this.last = total;
  }
}
