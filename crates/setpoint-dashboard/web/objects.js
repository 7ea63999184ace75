// Objects: who owns whom, who wrote which field, what changed, which events there are.

import { ask, h, patch, put, say, table } from "./dom.js";
import { differences, owners } from "./fields.js";
import { Follow } from "./follow.js";
import { VirtualList } from "./list.js";
import { Source } from "./source.js";
import { changes } from "./story.js";
import { clock, count, some, span } from "./words.js";

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
    /** @type {Source | null} */
    this.life = null;
    /** Which call of show is the last one; another one after it was left. */
    this.turn = 0;
    /** @type {Set<string>} */
    this.isNamespaced = new Set();
    this.choose = h("select", { "aria-label": "Kind", onchange: () => this.go(this.choose.value, "") });
    this.search = h("input", { type: "search", placeholder: "part of a name", "data-main": true, "aria-label": "Search objects", oninput: () => this.list.refresh() });
    this.namespace = h("input", { type: "search", placeholder: "namespace", "aria-label": "Namespace", hidden: true, oninput: () => this.list.refresh() });
    this.found = h("span", { role: "status" });
    this.list = VirtualList.make({
      label: "Objects",
      fetch: async (offset, limit) => {
        if (!this.resource) return { rows: [], matches: 0 };
        const query = new URLSearchParams({ resource: this.resource, q: this.search.value, offset: String(offset), limit: String(limit) });
        if (!this.namespace.hidden) query.set("namespace", this.namespace.value.trim());
        const window = await ask(`/api/objects?${query}`).catch((error) => {
          if (error.status === 403 && !this.namespace.hidden) error.message += ". Name a namespace whose objects you may list.";
          throw error;
        });
        say(this.found, `${count(window.matches)} of ${some(window.total, "object")}`);
        return window;
      },
      draw: (row) => [h("span", { title: row.key }, row.key), h("span", { class: "quiet" }, row.version ?? "gone")],
      open: (row) => this.go(this.resource, row.key),
      isOpen: (row) => row.key === this.key,
    });
    this.detail = h("div", { class: "stack" });
    this.element = h("div", {}, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Objects"), h("p", { class: "ask" }, "Who made each of them, who changed what, and when."))),
      h("div", { class: "split" }, h("div", {}, h("div", { class: "bar" }, this.choose, this.namespace, this.search), h("p", { class: "quiet list-head" }, this.found, h("span", {}, "version")), this.list), this.detail));
    this.follow = new Follow(stream, () => this.look());
  }

  /** @param {string} resource @param {string} key */
  go(resource, key) {
    location.hash = `#/objects?${new URLSearchParams({ resource, ...(key && { key }), ...(this.tab !== "history" && { tab: this.tab }) })}`;
  }

  /** @param {URLSearchParams} query */
  async show(query) {
    const turn = ++this.turn;
    this.tab = query.get("tab") ?? "history";
    const isOther = this.resource !== query.get("resource") || this.key !== (query.get("key") ?? "");
    try {
      await this.fillKinds(query.get("resource") ?? "");
    } catch (error) {
      if (turn === this.turn) put(this.detail, h("p", { class: "card bad" }, String(/** @type {Error} */ (error).message)));
      return;
    }
    // It took a while: something else may be shown by now.
    if (turn !== this.turn) return;
    const resource = query.get("resource") || this.choose.value;
    if (resource !== this.resource) {
      this.resource = resource;
      this.namespace.hidden = !this.isNamespaced.has(resource);
      this.list.restart();
    }
    this.choose.value = resource;
    this.key = query.get("key") ?? "";
    if (isOther || !this.life) this.open();
    else this.drawTab();
    this.follow.start();
  }

  hide() {
    this.turn++;
    this.follow.stop();
    this.life?.close();
    this.life = null;
  }

  /** @param {string} wanted */
  async fillKinds(wanted) {
    const { kinds } = await ask("/api/kinds");
    const text = (/** @type {any} */ kind) => `${kind.resource} (${kind.trouble ? "not readable" : count(kind.objects)})`;
    const before = this.choose.value;
    this.isNamespaced = new Set(kinds.filter((/** @type {any} */ kind) => kind.isNamespaced).map((/** @type {any} */ kind) => kind.resource));
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
      put(this.detail, h("p", { class: "card empty" }, "Choose an object to see who owns it, who wrote which of its fields, and what changes."));
      return;
    }
    this.tree = h("div", {}, h("p", { class: "empty" }, "Looking for its owners…"));
    this.tabs = h("div", { class: "tabs", role: "group", "aria-label": "What to show of it" });
    this.body = h("div", {});
    put(this.detail, h("section", { class: "card" }, h("h2", {}, "Owners, and what is owned"), this.tree),
      h("section", { class: "card", "aria-label": "The object" }, h("div", { class: "panel-head" }, h("h2", {}, `${this.resource} ${this.key}`)), this.tabs, this.body));
    const query = new URLSearchParams({ resource: this.resource, key: this.key });
    this.life = new Source(() => `/api/life?${query}`, { object: (event) => this.hear(JSON.parse(event.data)) });
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

  /** Asks again, soon after something happened. */
  async look() {
    await this.list.refresh();
    if (!this.key) return;
    await this.lookAtTree();
    if (this.tab === "events") await this.lookAtEvents();
  }

  async lookAtTree() {
    const [resource, key] = [this.resource, this.key];
    try {
      const { nodes, why } = await ask(`/api/tree?${new URLSearchParams({ resource, key })}`);
      if (this.key !== key || this.resource !== resource) return;
      patch(this.tree, nodes.length ? h("ul", { class: "tree" }, nodes.map((/** @type {any} */ node) => this.node(node))) : h("p", { class: "empty" }, why));
    } catch (error) {
      if (this.key === key) patch(this.tree, h("p", { class: "empty" }, String(/** @type {Error} */ (error).message)));
    }
  }

  /** @param {any} node */
  node(node) {
    const age = node.created ? `${span(this.stream.now() - node.created)} old` : "";
    const [, ready, wanted] = /(\d+) of (\d+) ready/.exec(node.state) ?? [];
    const isBad = ready !== wanted || node.state.includes("not ") || node.state.includes("Failed");
    return h("li", { class: `d${Math.min(5, node.depth)}`, "data-key": node.uid },
      h("button", { "aria-pressed": String(node.isAsked), onclick: () => this.go(node.resource, node.key) },
        h("span", { class: "quiet" }, node.kind), h("span", { class: "n" }, node.key.split("/").at(-1)),
        node.isBeingDeleted && h("span", { class: "tag bad" }, "being deleted"), node.state && h("span", { class: `tag ${isBad ? "warn" : "good"}` }, node.state), h("span", { class: "quiet" }, age)));
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
    patch(this.tabs, TABS.map(([id, label]) => h("button", { "aria-pressed": String(id === this.tab), onclick: () => { this.tab = id; this.go(this.resource, this.key); } }, label)));
    const make = /** @type {Record<string, () => Node>} */ ({ history: () => this.history(), fields: () => this.fields(), events: () => this.eventList(), whole: () => this.whole() });
    patch(this.body, (make[this.tab] ?? make.history)());
    if (this.tab === "events" && !this.events) this.lookAtEvents();
  }

  history() {
    if (!this.states?.length) return h("p", { class: "empty" }, "Waiting for the object…");
    return h("div", {}, h("p", { class: "quiet" }, this.states.length > 1 ? `${some(this.states.length - 1, "change")} since this page looks at it, newest first.` : "No change since this page looks at it."),
      h("ol", { class: "history", "aria-label": "Changes" }, [...this.states].reverse().map((state) => {
        const by = lastWriter(state.object);
        const { resourceVersion, uid } = state.object.metadata;
        const what = state.changed === null ? `as it was when the page began to look, version ${resourceVersion}` : state.what === "deleted" ? "gone" : `version ${resourceVersion}${by ? `, by ${by}` : ""}`;
        return h("li", { "data-key": `${uid} ${state.what} ${resourceVersion}` },
          h("div", { class: "line" }, h("span", { class: `tag ${state.what === "deleted" ? "bad" : ""}` }, state.changed === null ? "state" : state.what), h("span", {}, what), h("time", {}, clock(state.at))),
          state.changed?.length > 0 && changes(state.changed));
      })));
  }

  fields() {
    const last = this.states?.at(-1);
    if (!last) return h("p", { class: "empty" }, "Waiting for the object…");
    const rows = owners(last.object).sort((a, b) => b.at - a.at).map((it) => [it.manager, `${it.operation}${it.subresource ? ` (${it.subresource})` : ""}`, Number.isNaN(it.at) ? "–" : `${span(this.stream.now() - it.at)} ago`, it.paths.map((path) => h("div", { class: "mono" }, path))]);
    return table("Field managers", ["manager", "how", "when", "fields"], rows, "The object has no managedFields.");
  }

  eventList() {
    if (!this.events) return h("p", { class: "empty" }, "Loading…");
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
