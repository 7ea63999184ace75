// The loop as a picture, with what each stage does now.

import { h, put, s, say } from "./dom.js";
import { Panel } from "./stage.js";
import { count, rate, some, span } from "./words.js";

/** What a stage shows: a big number, a line below, and what is wrong. @typedef {{big: string, more: string, trouble?: string}} Shown */

const STAGES = [
  { id: "server", place: "1 / 2 / 2 / 7", name: "API server", what: "objects, each change at a resourceVersion", curve: "writes" },
  { id: "reflector", place: "3 / 2", name: "1  Reflector", what: "lists, then watches, for ever", curve: "received" },
  { id: "fifo", place: "3 / 4", name: "2  DeltaFIFO", what: "what changed, by key, in order", curve: "applied" },
  { id: "indexer", place: "3 / 6", name: "3  Indexer", what: "the cache, at one version", curve: "applied" },
  { id: "informer", place: "5 / 6", name: "4  Informer", what: "tells handlers what is cached", curve: "added" },
  { id: "queue", place: "5 / 4", name: "5  Work queue", what: "keys that want to be processed", curve: "added" },
  { id: "controller", place: "5 / 2", name: "6  Controller", what: "workers, each key in one hand", curve: "reconciles" },
];

const ARROWS = [
  { place: "2 / 2", to: "down", text: "list, watch", total: "received" },
  { place: "3 / 3", to: "right", text: "", total: "received" },
  { place: "3 / 5", to: "right", text: "batches", total: "applied" },
  { place: "4 / 6", to: "down", text: "told", total: "applied" },
  { place: "5 / 5", to: "left", text: "key", total: "added" },
  { place: "5 / 3", to: "left", text: "key", total: "reconciles" },
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
    this.caption = h("p", { class: "quiet" });
    this.element = h("div", {},
      h("div", { class: "bar" }, h("h1", {}, "The loop, live"), this.caption), picture, this.panel.element);
    this.update = () => this.draw();
  }

  /** @param {URLSearchParams} query */
  show(query) {
    this.stream.addEventListener("state", this.update);
    this.opened = query.get("stage") ?? "";
    for (const stage of this.stages) stage.element.setAttribute("aria-pressed", String(stage.id === this.opened));
    this.panel.open(this.opened, query);
    if (this.stream.state) this.draw();
  }

  hide() {
    this.stream.removeEventListener("state", this.update);
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
    say(this.caption, `${some(stream.state.caches.length, "cache")}, ${some(stream.state.queues.length, "queue")}; ${rate(stream.rate("facts"))} facts${missed}. Choose a stage to see what is in it.`);
    this.panel.draw();
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
  return {
    server: { big: `${rate(stream.rate("writes"))} writes by controllers`, more: `${count(sum(controllers, "writes"))} since the page listens, ${count(sum(controllers, "refused"))} refused`, trouble: unchanged > 0 ? `${rate(unchanged)} changed nothing` : "" },
    reflector: { big: some(scopes.length, "watch", "watches"), more: `${rate(stream.rate("received"))} changes`, trouble: failing ? `${failing} failing` : "" },
    fifo: { big: `${count(sum(scopes, "pending"))} pending`, more: `slowest way into a cache: ${span(lag)}`, trouble: lag > 2000 ? "a cache lags" : "" },
    indexer: { big: some(sum(state.caches, "objects"), "object"), more: `in ${some(state.caches.length, "cache")}`, trouble: unsynced ? `${unsynced} not synced` : "" },
    informer: { big: `${count(sum(handlers, "backlog"))} behind`, more: some(handlers.length, "handler"), trouble: sum(handlers, "backlog") > 1000 ? "a handler is slow" : "" },
    queue: { big: `${count(sum(state.queues, "ready"))} ready`, more: `${count(sum(state.queues, "waiting"))} waiting, ${count(sum(state.queues, "held"))} held, ${rate(stream.rate("added"))} added`, trouble: late ? `${late} held too long` : "" },
    controller: { big: `${rate(stream.rate("reconciles"))} reconciles`, more: `${count(running)} running${workers ? ` on ${count(workers)} workers` : ""}, slowest ${span(slowest)}`, trouble: failed > 0 ? `${rate(failed)} failing` : "" },
  };
}

class Card {
  /** @param {any} stage @param {() => void} open */
  constructor(stage, open) {
    this.id = stage.id;
    this.curve = stage.curve;
    this.big = h("span", { class: "big" }, "–");
    this.more = h("span", { class: "more" });
    this.trouble = h("span", { class: "trouble" });
    this.line = s("polyline", { class: "spark", points: "" });
    const name = h("span", { class: "name" }, stage.name);
    const what = h("span", { class: "what" }, stage.what);
    const isServer = stage.id === "server";
    const body = isServer
      ? [h("span", { class: "line" }, name, what, this.big, this.more, this.trouble)]
      : [name, what, this.big, this.more, this.trouble, s("svg", { viewBox: "0 0 60 20", preserveAspectRatio: "none", "aria-hidden": "true" }, this.line)];
    this.element = h("button", { class: isServer ? "stage server" : "stage", id: `stage-${stage.id}`, "aria-pressed": "false", onclick: open }, body);
    this.element.style.gridArea = stage.place;
  }

  /** @param {Shown} shown @param {number[]} curve */
  draw(shown, curve) {
    say(this.big, shown.big);
    say(this.more, shown.more);
    say(this.trouble, shown.trouble ? `⚠ ${shown.trouble}` : "");
    const most = Math.max(1, ...curve);
    const at = 60 - curve.length;
    this.line.setAttribute("points", curve.map((n, x) => `${at + x},${19 - (18 * n) / most}`).join(" "));
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
