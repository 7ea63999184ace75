// Objects: who owns whom, who wrote which field, what changed, which events there are.

import { ask, h, put, table } from "./dom.js";
import { changes } from "./keys.js";
import { differences, owners } from "./fields.js";
import { VirtualList } from "./list.js";
import { clock, count, some, span } from "./words.js";

/** How often the tree and the events are asked for again while nothing is told. */
const EVERY = 2000;
const MOST_STATES = 200;
const TABS = [["history", "History"], ["fields", "Who wrote which field"], ["events", "Events"], ["whole", "As JSON"]];

export class ObjectsView {
  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.stream = stream;
    this.resource = "";
    this.key = "";
    this.tab = "history";
    /** @type {any[]} what it was, oldest first */
    this.states = [];
    /** @type {any[] | null} */
    this.events = null;
    this.eventsError = "";
    /** @type {EventSource | null} */
    this.life = null;
    this.hasNews = false;
    this.turns = 0;
    this.choose = h("select", { "aria-label": "Kind", onchange: () => this.go(this.choose.value, "") });
    this.search = h("input", { type: "search", placeholder: "part of a name", "aria-label": "Search objects", oninput: () => this.list.refresh() });
    this.found = h("span", { class: "quiet", role: "status" });
    this.list = VirtualList.make({
      label: "Objects",
      fetch: async (offset, limit) => {
        if (!this.resource) return { rows: [], matches: 0 };
        const query = new URLSearchParams({ resource: this.resource, q: this.search.value, offset: String(offset), limit: String(limit) });
        const window = await ask(`/api/objects?${query}`);
        this.found.textContent = `${count(window.matches)} of ${count(window.total)}`;
        return window;
      },
      draw: (row) => [h("span", {}, row.key), h("span", { class: "quiet" }, row.version ?? "gone")],
      open: (row) => this.go(this.resource, row.key),
      isOpen: (row) => row.key === this.key,
    });
    this.detail = h("div", {});
    this.element = h("div", {}, h("div", { class: "bar" }, h("h1", {}, "Objects"), this.found),
      h("div", { class: "split" }, h("div", {}, h("div", { class: "bar" }, this.choose, this.search), this.list), this.detail));
    stream.addEventListener("facts", () => (this.hasNews = true));
  }

  /** @param {string} resource @param {string} key */
  go(resource, key) {
    location.hash = `#/objects?${new URLSearchParams({ resource, ...(key && { key }), ...(this.tab !== "history" && { tab: this.tab }) })}`;
  }

  /** @param {URLSearchParams} query */
  async show(query) {
    clearInterval(this.timer);
    this.timer = setInterval(() => this.look(), EVERY / 4);
    this.tab = query.get("tab") ?? "history";
    const isOther = this.resource !== query.get("resource") || this.key !== (query.get("key") ?? "");
    try {
      await this.fillKinds(query.get("resource") ?? "");
    } catch (error) {
      put(this.detail, h("p", { class: "card bad" }, String(/** @type {Error} */ (error).message)));
      return;
    }
    const resource = query.get("resource") || this.choose.value;
    if (resource !== this.resource) {
      this.resource = resource;
      this.list.refresh();
    }
    this.choose.value = resource;
    this.key = query.get("key") ?? "";
    if (isOther || !this.life) this.open();
    else this.drawTab();
  }

  hide() {
    clearInterval(this.timer);
    this.life?.close();
    this.life = null;
  }

  /** @param {string} wanted */
  async fillKinds(wanted) {
    const { kinds } = await ask("/api/kinds");
    const text = (/** @type {any} */ kind) => `${kind.resource} (${kind.trouble ? "not readable" : count(kind.objects)})`;
    const before = this.choose.value;
    // Those that have objects first.
    kinds.sort((/** @type {any} */ a, /** @type {any} */ b) => Number(a.objects === 0) - Number(b.objects === 0) || (a.resource < b.resource ? -1 : 1));
    put(this.choose, kinds.map((/** @type {any} */ kind) => h("option", { value: kind.resource }, text(kind))));
    const first = kinds.find((/** @type {any} */ kind) => kind.resource === "deployments.apps" && kind.objects) ?? kinds.find((/** @type {any} */ kind) => kind.objects) ?? kinds[0];
    this.choose.value = wanted || before || first?.resource || "";
  }

  open() {
    this.life?.close();
    this.life = null;
    this.states = [];
    this.events = null;
    this.eventsError = "";
    this.uid = "";
    if (!this.key) {
      put(this.detail, h("p", { class: "card quiet" }, "Choose an object to see who owns it, who wrote which of its fields, and what changes."));
      return;
    }
    this.tree = h("div", {}, h("p", { class: "empty" }, "Looking for its owners…"));
    this.tabs = h("div", { class: "tabs", role: "group", "aria-label": "What to show of it" });
    this.body = h("div", {});
    put(this.detail, h("section", { class: "card" }, h("h2", {}, "Owners, and what is owned"), this.tree),
      h("section", { class: "card" }, h("div", { class: "panel-head" }, h("h2", {}, `${this.resource} ${this.key}`)), this.tabs, this.body));
    /** @type {HTMLElement} */ (this.detail.lastChild).style.marginTop = "1rem";
    const query = new URLSearchParams({ resource: this.resource, key: this.key });
    const life = new EventSource(`/api/life?${query}`);
    this.life = life;
    life.addEventListener("object", (event) => {
      if (this.life !== life) return;
      this.hear(JSON.parse(event.data));
    });
    this.drawTab();
    this.lookAtTree();
  }

  /** @param {{what: string, at: number, object: any}} state */
  hear(state) {
    const last = this.states.at(-1);
    // After a reconnect the server tells the same state again.
    if (last && state.what !== "deleted" && last.object.metadata.resourceVersion === state.object.metadata.resourceVersion) return;
    this.states.push({ ...state, changed: last ? differences(last.object, state.object) : null });
    if (this.states.length > MOST_STATES) this.states.shift();
    this.uid = state.object.metadata.uid;
    if (!this.events) this.lookAtEvents();
    this.drawTab();
  }

  /** Looks again, soon after something happened. */
  look() {
    if (document.hidden) return;
    this.turns += 1;
    if (!this.hasNews && this.turns % 4) return;
    this.hasNews = false;
    this.list.refresh();
    if (this.key) {
      this.lookAtTree();
      if (this.tab === "events") this.lookAtEvents();
    }
  }

  async lookAtTree() {
    const [resource, key] = [this.resource, this.key];
    try {
      const { nodes, why } = await ask(`/api/tree?${new URLSearchParams({ resource, key })}`);
      if (this.key !== key || this.resource !== resource || this.tree.contains(document.activeElement)) return;
      put(this.tree, nodes.length ? h("ul", { class: "tree" }, nodes.map((/** @type {any} */ node) => this.node(node))) : h("p", { class: "empty" }, why));
    } catch (error) {
      if (this.key === key) put(this.tree, h("p", { class: "empty" }, String(/** @type {Error} */ (error).message)));
    }
  }

  /** @param {any} node */
  node(node) {
    const age = node.created ? `${span(this.stream.now() - node.created)} old` : "";
    const [, ready, wanted] = /(\d+) of (\d+) ready/.exec(node.state) ?? [];
    const isBad = ready !== wanted || node.state.includes("not ") || node.state.includes("Failed");
    return h("li", { class: `d${Math.min(5, node.depth)}` },
      h("button", { "aria-pressed": String(node.isAsked), onclick: () => this.go(node.resource, node.key) },
        h("span", { class: "tag" }, node.kind), h("span", { class: "n" }, node.key.split("/").at(-1)),
        node.isBeingDeleted && h("span", { class: "bad" }, "being deleted"), node.state && h("span", { class: isBad ? "warn" : "good" }, node.state), h("span", { class: "quiet" }, age)));
  }

  async lookAtEvents() {
    if (!this.uid) return;
    const namespace = this.key.includes("/") ? this.key.split("/")[0] : "";
    try {
      this.events = (await ask(`/api/events?${new URLSearchParams({ namespace, uid: this.uid })}`)).events;
    } catch (error) {
      this.events = [];
      this.eventsError = String(/** @type {Error} */ (error).message);
    }
    if (this.tab === "events") this.drawTab();
  }

  drawTab() {
    if (!this.tabs) return;
    put(this.tabs, TABS.map(([id, label]) => h("button", { "aria-pressed": String(id === this.tab), onclick: () => { this.tab = id; this.go(this.resource, this.key); } }, label)));
    const make = /** @type {Record<string, () => Node>} */ ({ history: () => this.history(), fields: () => this.fields(), events: () => this.eventList(), whole: () => this.whole() });
    put(this.body, (make[this.tab] ?? make.history)());
    if (this.tab === "events" && !this.events) this.lookAtEvents();
  }

  history() {
    if (!this.states?.length) return h("p", { class: "empty" }, "Waiting for the object…");
    return h("div", {}, h("p", { class: "quiet" }, `What changed while this page listens: ${some(this.states.length - 1, "change")}.`),
      h("ol", { class: "story", tabindex: "0", "aria-label": "Changes" }, [...this.states].reverse().map((state) => {
        const by = lastWriter(state.object);
        const what = state.changed === null ? `as it was when the page began to listen, version ${state.object.metadata.resourceVersion}` : state.what === "deleted" ? "deleted" : `version ${state.object.metadata.resourceVersion}${by ? `, by ${by}` : ""}`;
        return h("li", {}, h("time", {}, clock(state.at)), h("span", { class: "tag" }, state.changed === null ? "state" : state.what), h("span", { class: "what" }, what), state.changed?.length > 0 && changes(state.changed));
      })));
  }

  fields() {
    const last = this.states?.at(-1);
    if (!last) return h("p", { class: "empty" }, "Waiting for the object…");
    const rows = owners(last.object).sort((a, b) => b.at - a.at).map((it) => [it.manager, `${it.operation}${it.subresource ? ` (${it.subresource})` : ""}`, Number.isNaN(it.at) ? "–" : `${span(this.stream.now() - it.at)} ago`, it.paths.map((path) => h("div", { class: "mono" }, path))]);
    return table("Field managers", ["manager", "how", "when", "fields"], rows, "The object has no managedFields.");
  }

  eventList() {
    if (!this.events) return h("p", { class: "empty" }, "Asking…");
    const rows = this.events.sort((/** @type {any} */ a, /** @type {any} */ b) => (b.at ?? 0) - (a.at ?? 0)).map((/** @type {any} */ it) => [it.at ? `${span(this.stream.now() - it.at)} ago` : "–", h("span", { class: it.type === "Warning" ? "bad" : "" }, it.type === "Warning" ? "⚠ Warning" : it.type), it.reason, `${it.message}${it.count > 1 ? ` (${it.count} times)` : ""}`, it.source ?? ""]);
    return table("Events", ["when", "type", "reason", "message", "from"], rows, this.eventsError || "There are no events about it.");
  }

  whole() {
    const last = this.states?.at(-1);
    if (!last) return h("p", { class: "empty" }, "Waiting for the object…");
    return h("pre", { tabindex: "0" }, JSON.stringify(last.object, (name, value) => (name === "managedFields" ? undefined : value), 2));
  }
}

/** Who wrote last. @param {any} object */
function lastWriter(object) {
  const all = owners(object).filter((it) => !Number.isNaN(it.at)).sort((a, b) => b.at - a.at);
  return all[0]?.manager ?? "";
}
