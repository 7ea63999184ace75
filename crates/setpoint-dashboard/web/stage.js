// What is in a stage.

import { ask, h, patch, put, table } from "./dom.js";
import { Follow } from "./follow.js";
import { VirtualList } from "./list.js";
import { awaited, because, cacheName, count, nanos, phase, reflector, scopeKey, span, usersOf } from "./words.js";

const TITLES = {
  server: "Writes", reflector: "Lists and watches", fifo: "Changes that are not in the caches yet", indexer: "What is cached",
  informer: "Handlers", queue: "Keys in the queues", controller: "Workers and what they do",
};
/** The states of a key in a word. @type {Record<string, string>} */
const PHASES = { queued: "ready", dirty: "processing, dirty", holdingDirty: "holding, dirty", heldDirty: "held, dirty" };

/** @param {number | null} ms */
const took = (ms) => h("span", { class: "nowrap" }, ms === null ? "–" : span(ms));

export class Panel {
  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.stream = stream;
    this.stage = "";
    this.title = h("h2", {});
    this.tools = h("div", { class: "bar" });
    /** @type {Follow | null} what has to be asked for */
    this.follow = null;
    /** @type {(() => void) | null} */
    this.waiting = null;
    this.body = h("div", {});
    this.element = h("section", { class: "card", hidden: true, "aria-live": "off" }, h("div", { class: "panel-head" }, this.title, this.tools), this.body);
  }

  /** @param {string} stage @param {URLSearchParams} query */
  open(stage, query) {
    this.close();
    this.stage = stage in TITLES ? stage : "";
    this.element.hidden = !this.stage;
    // Without numbers there is nothing to choose from: it is opened again when they come.
    this.waiting = this.stage && !this.stream.state ? () => this.open(stage, query) : null;
    if (!this.stage || this.waiting) return;
    this.title.textContent = /** @type {Record<string, string>} */ (TITLES)[stage];
    put(this.tools);
    put(this.body);
    if (stage === "indexer") this.openCaches(query);
    if (stage === "queue") this.openQueues(query);
    this.draw();
  }

  close() {
    this.follow?.stop();
    this.follow = null;
    this.stage = "";
    this.waiting = null;
  }

  draw() {
    if (this.waiting) this.waiting();
    const make = /** @type {Record<string, () => Node>} */ ({ server: () => this.writes(), reflector: () => this.watches(), fifo: () => this.pending(), informer: () => this.handlers(), controller: () => this.workers() })[this.stage];
    if (make) patch(this.body, make());
  }

  writes() {
    const all = [...this.stream.state.totals.controllers].sort((a, b) => b.writes + b.refused - (a.writes + a.refused) || (a.controller < b.controller ? -1 : 1));
    // Of those who write with a client of their own, nothing is known.
    const rows = all.map((/** @type {any} */ it) => (it.work || it.writes ? [it.controller, count(it.writes), count(it.unchanged), count(it.refused)] : [it.controller, h("span", { class: "quiet", title: "It writes with a client of its own" }, "not known"), "–", "–"]));
    return table("Writes by controller", ["controller", "writes", "changed nothing", "refused"], rows, "No controller has written yet.");
  }

  /** What is known of each list and watch. @returns {Map<string, any>} */
  known() {
    return new Map(this.stream.state.totals.caches.map((/** @type {any} */ it) => [scopeKey(it.id, it.namespace), it]));
  }

  watches() {
    const known = this.known();
    const rows = this.stream.state.caches.flatMap((/** @type {any} */ cache) => cache.scopes.map((/** @type {any} */ scope) => {
      const name = cacheName({ resource: cache.resource, namespace: scope.namespace });
      const heard = known.get(scopeKey(cache.id, scope.namespace));
      const state = scope.trouble ? h("span", { class: "bad" }, `⚠ ${scope.trouble}`) : cache.hasSynced ? "watches" : reflector(heard?.state);
      return [name, state, scope.version ?? "–", took(heard?.lagMs ?? 0), count(heard?.received ?? 0), count(heard?.lists ?? 0), count(heard?.failures ?? 0), heard?.since ? `for ${span(this.stream.now() - heard.since)}` : "–", h("span", { class: "quiet" }, usersOf(cache) || "–")];
    }));
    return table("Lists and watches", ["resource", "now", "at version", "lag", "changes", "lists", "failures", "in this state", "for"], rows, "There is no cache.");
  }

  pending() {
    const known = this.known();
    const rows = this.stream.state.caches.flatMap((/** @type {any} */ cache) => cache.scopes.map((/** @type {any} */ scope) => {
      const name = cacheName({ resource: cache.resource, namespace: scope.namespace });
      return [name, count(scope.pending), span(known.get(scopeKey(cache.id, scope.namespace))?.lagMs ?? 0), scope.version ?? "–", h("span", { class: "quiet" }, usersOf(cache) || "–")];
    }));
    return table("Pending changes", ["resource", "pending", "from watch to cache", "cache at version", "for"], rows, "There is no cache.");
  }

  handlers() {
    const rows = this.stream.state.caches.flatMap((/** @type {any} */ cache) => cache.handlers.map((/** @type {any} */ it) => [/^\d*$/.test(it.handler) ? h("span", { class: "quiet" }, `unnamed ${it.handler}`) : it.handler, count(it.backlog), cache.resource]));
    return table("Handlers", ["handler", "not delivered yet", "resource"], rows, "No handler is registered.");
  }

  workers() {
    const all = [...this.stream.state.totals.controllers].sort((a, b) => b.reconciles - a.reconciles || (a.controller < b.controller ? -1 : 1));
    const workers = new Map(this.stream.state.controllers.map((/** @type {any} */ it) => [it.controller, it.workers]));
    const rows = all.map((/** @type {any} */ it) => {
      const running = it.running.map((/** @type {any} */ run) => h("div", {}, h("a", { href: `#/keys?controller=${encodeURIComponent(it.controller)}&key=${encodeURIComponent(run.key)}` }, run.key), ` for ${span(this.stream.now() - run.since)}, because: ${run.reasons}`));
      return [it.controller, it.work ?? "–", h("span", { class: "nowrap" }, `${it.running.length}${workers.has(it.controller) ? ` of ${workers.get(it.controller)}` : ""}`), count(it.reconciles), count(it.failed), took(it.p50Ms), took(it.p99Ms), running.length ? running : h("span", { class: "quiet" }, "nothing")];
    });
    return table("Workers", ["controller", "state", "busy", "reconciles", "failed", "p50", "p99", "reconciles now"], rows, "No controller has started.");
  }

  /** @param {URLSearchParams} query */
  openCaches(query) {
    const caches = this.stream.state?.caches ?? [];
    if (caches.length === 0) {
      put(this.body, h("p", { class: "empty" }, "There is no cache."));
      return;
    }
    // There is something to see in one that has objects.
    let id = Number(query.get("cache")) || (caches.find((/** @type {any} */ cache) => cache.objects) ?? caches[0]).id;
    const several = new Set(caches.map((/** @type {any} */ it) => it.resource).filter((/** @type {string} */ name, /** @type {number} */ n, /** @type {string[]} */ all) => all.indexOf(name) !== n));
    const whose = (/** @type {any} */ cache) => (several.has(cache.resource) && usersOf(cache) ? ` for ${usersOf(cache)}` : "");
    const search = h("input", { type: "search", placeholder: "part of a name", "data-main": true, "aria-label": "Search in the cache", oninput: () => list.refresh() });
    const choose = h("select", { "aria-label": "Cache", onchange: () => { id = Number(choose.value); list.restart(); } },
      caches.map((/** @type {any} */ cache) => h("option", { value: cache.id, selected: cache.id === id }, `${cache.resource} (${count(cache.objects)})${whose(cache)}`)));
    const found = h("span", { class: "quiet", role: "status" });
    const list = VirtualList.make({
      label: "Cached objects",
      fetch: async (offset, limit) => {
        const query = new URLSearchParams({ id: String(id), q: search.value, offset: String(offset), limit: String(limit) });
        const window = await ask(`/api/cache?${query}`);
        found.textContent = `${count(window.matches)} of ${count(window.total)}`;
        return window;
      },
      draw: (row) => [h("span", { title: row.key }, row.key), h("span", { class: "quiet" }, row.version ? `version ${row.version}` : "gone")],
      open: (row) => {
        const cache = this.stream.state.caches.find((/** @type {any} */ it) => it.id === id);
        location.hash = `#/objects?resource=${encodeURIComponent(cache.resource)}&key=${encodeURIComponent(row.key)}`;
      },
    });
    put(this.tools, choose, search, found);
    put(this.body, list);
    this.follow = new Follow(this.stream, () => list.refresh());
    this.follow.start();
  }

  /** @param {URLSearchParams} query */
  openQueues(query) {
    const names = (this.stream.state?.queues ?? []).map((/** @type {any} */ queue) => queue.queue);
    if (names.length === 0) {
      put(this.body, h("p", { class: "empty" }, "There is no queue."));
      return;
    }
    const busiest = [...this.stream.state.queues].sort((a, b) => b.ready + b.processing + b.held + b.waiting - (a.ready + a.processing + a.held + a.waiting))[0].queue;
    const name = query.get("queue") ?? busiest;
    const choose = h("select", { "aria-label": "Queue" }, names.map((/** @type {string} */ it) => h("option", { value: it, selected: it === name }, it)));
    const look = async () => {
      try {
        patch(this.body, this.keys(await ask(`/api/queue?name=${encodeURIComponent(choose.value)}`)));
      } catch (error) {
        patch(this.body, h("p", { class: "empty" }, String(/** @type {Error} */ (error).message)));
      }
    };
    choose.addEventListener("change", look);
    put(this.tools, h("label", {}, "Queue", choose));
    this.follow = new Follow(this.stream, look);
    this.follow.start();
  }

  /** @param {any} queue */
  keys(queue) {
    const order = ["processing", "dirty", "holding", "holdingDirty", "queued", "held", "heldDirty", "absent"];
    const keys = queue.keys.sort((/** @type {any} */ a, /** @type {any} */ b) => order.indexOf(a.phase) - order.indexOf(b.phase) || (a.dueIn ?? 0) - (b.dueIn ?? 0) || (a.key < b.key ? -1 : 1));
    const rows = keys.map((/** @type {any} */ key) => {
      const isWaiting = key.phase === "absent";
      const state = h("span", { class: `tag ${key.phase.startsWith("h") ? "hold" : isWaiting ? "warn" : key.phase === "queued" ? "" : "run"}` }, isWaiting ? "waiting" : PHASES[key.phase] ?? key.phase);
      const what = key.until.length ? `held until ${key.until.map(awaited).join(", and ")}; for ${nanos(key.heldAtMost)} at most` : isWaiting || key.dueIn ? `ready in ${nanos(key.dueIn)}` : phase(key.phase);
      return [h("a", { href: `#/keys?controller=${encodeURIComponent(queue.queue)}&key=${encodeURIComponent(key.key)}` }, key.key), state, what, because(key.reasons), String(key.priority)];
    });
    const shown = keys.length < queue.ready + queue.processing + queue.waiting + queue.held ? h("p", { class: "quiet" }, `Some of them; 200 of each state at most.`) : null;
    return h("div", {},
      h("p", {}, `${count(queue.ready)} ready, ${count(queue.processing)} processing, ${count(queue.waiting)} waiting for their delay to pass, ${count(queue.held)} held, ${count(queue.dirty)} dirty.`),
      table("Keys", ["key", "state", "what it waits for", "why", "priority"], rows, "The queue is empty."), shown);
  }
}
