// The life of each key: event, reasons, wait, reconcile, writes, hold, seen.

import { h, put, say } from "./dom.js";
import { Lives, ROW, colours, drawLife, sharp, ticks } from "./lanes.js";
import { clock, count, some, tell } from "./words.js";

/** How many lanes are shown at first. */
const LANES = 25;
/** How much time is shown at first, and within which bounds. */
const SHOWN = 30_000;
const SHORTEST = 20;
const LONGEST = 30 * 60_000;
/** How often the order of lanes may change. */
const ORDER_EVERY = 2000;

export class KeysView {
  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.stream = stream;
    this.lives = new Lives();
    this.lanes = LANES;
    this.length = SHOWN;
    /** @type {number | null} where the shown time ends; null for now */
    this.end = null;
    /** @type {any[]} */
    this.order = [];
    this.ordered = 0;
    this.selected = "";
    this.told = "";
    this.known = "";
    this.dirty = true;
    this.frame = 0;
    for (const fact of stream.facts) this.lives.hear(fact);
    stream.addEventListener("facts", (event) => {
      for (const fact of /** @type {CustomEvent} */ (event).detail) this.lives.hear(fact);
      this.dirty = true;
    });
    stream.addEventListener("reset", () => {
      this.lives.clear();
      this.ordered = 0;
      this.dirty = true;
    });
    window.addEventListener("themechange", () => (this.dirty = true));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.dirty = true));
    this.element = this.make();
  }

  make() {
    const change = () => this.go();
    this.controller = h("select", { "aria-label": "Controller", onchange: change }, h("option", { value: "" }, "every controller"));
    this.namespace = h("input", { type: "search", placeholder: "namespace", "aria-label": "Namespace", size: "12", onchange: change });
    this.key = h("input", { type: "search", placeholder: "part of a key", "aria-label": "Key", size: "18", onchange: change });
    this.outcome = h("select", { "aria-label": "Outcome", onchange: () => { this.ordered = 0; change(); } },
      h("option", { value: "" }, "any outcome"), h("option", { value: "failed" }, "failed"), h("option", { value: "loop" }, "loops"), h("option", { value: "writes" }, "wrote something"));
    this.sort = h("select", { "aria-label": "Order", onchange: () => { this.ordered = 0; change(); } },
      h("option", { value: "" }, "latest first"), h("option", { value: "busiest" }, "busiest first"), h("option", { value: "name" }, "by name"));
    this.live = h("button", { "aria-pressed": "true", onclick: () => this.stop(this.end === null ? this.stream.now() : null) }, "Live");
    const zoom = h("span", { role: "group", "aria-label": "Time line" },
      h("button", { title: "Earlier", "aria-label": "Earlier", onclick: () => this.pan(-0.5) }, "←"), h("button", { title: "Later", "aria-label": "Later", onclick: () => this.pan(0.5) }, "→"),
      h("button", { title: "Shorter time", "aria-label": "Zoom in", onclick: () => this.zoom(0.5) }, "+"), h("button", { title: "Longer time", "aria-label": "Zoom out", onclick: () => this.zoom(2) }, "−"));
    const share = h("button", { onclick: () => this.share(share) }, "Copy link");
    this.summary = h("span", { class: "quiet" });
    this.axis = h("canvas", { class: "axis", "aria-hidden": "true" });
    this.names = h("div", { class: "lane-names" });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.field = h("div", { class: "lane-canvas" }, this.canvas);
    this.more = h("button", { hidden: true, onclick: () => { this.lanes += LANES; this.ordered = 0; this.dirty = true; } }, "Show more keys");
    this.corner = h("div", { class: "corner" }, "key, reconciles");
    this.detail = h("section", { class: "card", hidden: true });
    this.detail.style.marginTop = "1rem";
    this.hear();
    const element = h("div", { onkeydown: (/** @type {KeyboardEvent} */ event) => this.press(event) },
      h("div", { class: "bar" }, h("h1", {}, "The life of each key"), this.summary),
      h("div", { class: "bar" }, this.controller, this.namespace, this.key, this.outcome, this.sort, this.live, zoom, share),
      h("div", { class: "lanes" }, this.corner, this.axis, this.names, this.field),
      h("p", {}, this.more), this.legend(), this.detail);
    return element;
  }

  hear() {
    this.canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const box = this.canvas.getBoundingClientRect();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
      const [start, x] = [this.end ?? this.stream.now(), event.clientX];
      this.canvas.setPointerCapture(event.pointerId);
      const move = (/** @type {PointerEvent} */ it) => {
        if (Math.abs(it.clientX - x) > 3) this.stop(start - ((it.clientX - x) / this.canvas.clientWidth) * this.length);
      };
      this.canvas.addEventListener("pointermove", move);
      this.canvas.addEventListener("pointerup", (/** @type {PointerEvent} */ it) => {
        this.canvas.removeEventListener("pointermove", move);
        if (Math.abs(it.clientX - x) <= 3) this.choose(this.order[Math.floor(it.offsetY / ROW)]);
      }, { once: true });
    });
  }

  /** @param {URLSearchParams} query */
  show(query) {
    const text = (/** @type {string} */ name) => query.get(name) ?? "";
    this.fillControllers(text("controller"));
    this.namespace.value = text("namespace");
    this.key.value = text("key");
    this.outcome.value = text("outcome");
    this.sort.value = text("sort");
    this.selected = text("open");
    if (query.has("end")) this.end = Number(query.get("end"));
    if (query.has("length")) this.length = Math.min(LONGEST, Math.max(SHORTEST, Number(query.get("length")) || SHOWN));
    this.stream.narrow({ controller: text("controller"), namespace: text("namespace"), key: text("key") });
    this.ordered = 0;
    this.dirty = true;
    this.told = "";
    if (!this.frame) this.tick();
  }

  hide() {
    cancelAnimationFrame(this.frame ?? 0);
    this.frame = 0;
    this.stream.narrow({ controller: "", namespace: "", key: "" });
  }

  /** @param {string} chosen */
  fillControllers(chosen) {
    const names = new Set((this.stream.state?.queues ?? []).map((/** @type {any} */ it) => it.queue));
    for (const it of this.stream.state?.totals.controllers ?? []) names.add(it.controller);
    if (chosen) names.add(chosen);
    const key = [...names].sort().join();
    if (this.known !== key) {
      this.known = key;
      put(this.controller, h("option", { value: "" }, "every controller"), [...names].sort().map((name) => h("option", { value: name }, name)));
    }
    this.controller.value = chosen;
  }

  query() {
    const query = new URLSearchParams();
    const set = (/** @type {string} */ name, /** @type {string} */ value) => value && query.set(name, value);
    set("controller", this.controller.value);
    set("namespace", this.namespace.value.trim());
    set("key", this.key.value.trim());
    set("outcome", this.outcome.value);
    set("sort", this.sort.value);
    set("open", this.selected);
    return query;
  }

  go() {
    location.hash = `#/keys?${this.query()}`;
  }

  /** A link to just what is seen. @param {HTMLElement} button */
  async share(button) {
    const query = this.query();
    query.set("end", String(Math.round(this.end ?? this.stream.now())));
    query.set("length", String(Math.round(this.length)));
    history.replaceState(null, "", `#/keys?${query}`);
    this.stop(Number(query.get("end")));
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      button.textContent = "It is in the address bar";
    }
    setTimeout(() => (button.textContent = "Copy link"), 2000);
  }

  /** @param {number | null} end */
  stop(end) {
    this.end = end === null || end >= this.stream.now() + this.length ? null : end;
    this.live.setAttribute("aria-pressed", String(this.end === null));
    this.live.textContent = this.end === null ? "Live" : "Paused; go live";
    this.dirty = true;
  }

  /** @param {number} part */
  pan(part) {
    this.stop(Math.min(this.stream.now(), (this.end ?? this.stream.now()) + part * this.length));
  }

  /** @param {number} factor @param {number} [at] which part of the time stays where it is */
  zoom(factor, at = 1) {
    const next = Math.min(LONGEST, Math.max(SHORTEST, this.length * factor));
    if (this.end !== null) this.end += (next - this.length) * (1 - at);
    this.length = next;
    this.dirty = true;
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (/** @type {HTMLElement} */ (event.target).closest("input, select") || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowLeft") this.pan(-0.25);
    else if (event.key === "ArrowRight") this.pan(0.25);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else return;
    event.preventDefault();
  }

  /** @param {any} life */
  choose(life) {
    if (!life) return;
    const id = `${life.controller}\n${life.key}`;
    this.selected = this.selected === id ? "" : id;
    this.told = "";
    this.ordered = 0;
    this.go();
  }

  tick() {
    this.frame = requestAnimationFrame((time) => {
      if (this.dirty || this.end === null) {
        if (time - (this.drawn ?? 0) > 60) {
          this.drawn = time;
          this.dirty = false;
          this.draw();
        }
      }
      this.tick();
    });
  }

  sorted() {
    const outcome = this.outcome.value;
    const key = this.key.value.trim();
    const fits = (/** @type {any} */ life) => (!this.controller.value || life.controller === this.controller.value) && (!key || life.key.includes(key)) &&
      (!outcome || (outcome === "failed" ? life.failures > 0 : outcome === "loop" ? life.loops > 0 : life.writes > 0));
    const all = [...this.lives.all.values()].filter(fits);
    const by = /** @type {Record<string, (a: any, b: any) => number>} */ ({
      "": (a, b) => b.last - a.last, busiest: (a, b) => b.reconciles - a.reconciles || b.last - a.last,
      name: (a, b) => (a.controller + a.key < b.controller + b.key ? -1 : 1),
    });
    return all.sort(by[this.sort.value]);
  }

  draw() {
    const now = this.stream.now();
    if (now - this.ordered > ORDER_EVERY && !this.names.matches(":hover, :focus-within")) {
      this.ordered = now;
      this.fillControllers(this.controller.value);
      const all = this.sorted();
      this.order = all.slice(0, this.lanes);
      this.more.hidden = all.length <= this.lanes;
      const left = this.stream.leftOut ? `; ${count(this.stream.leftOut)} facts left out, narrow it down to see all` : "";
      say(this.summary, `${some(all.length, "key")}${left}`);
      this.drawNames();
    }
    const end = this.end ?? now;
    const start = end - this.length;
    const width = this.field.clientWidth;
    const x = (/** @type {number} */ ms) => ((ms - start) / this.length) * width;
    const ink = colours();
    this.drawAxis(start, end, width, x, ink);
    const at = sharp(this.canvas, width, Math.max(1, this.order.length) * ROW);
    at.strokeStyle = ink.line;
    at.lineWidth = 1;
    for (const tick of ticks(start, end, Math.max(2, width / 110)).at) {
      at.beginPath(); at.moveTo(x(tick), 0); at.lineTo(x(tick), this.order.length * ROW); at.stroke();
    }
    this.order.forEach((life, n) => {
      at.strokeStyle = ink.line;
      at.lineWidth = 1;
      at.beginPath(); at.moveTo(0, (n + 1) * ROW - 0.5); at.lineTo(width, (n + 1) * ROW - 0.5); at.stroke();
      drawLife(at, life, n * ROW, x, width, now, ink);
    });
    this.tellStory();
  }

  /** @param {number} start @param {number} end @param {number} width @param {(ms: number) => number} x @param {any} ink */
  drawAxis(start, end, width, x, ink) {
    const at = sharp(this.axis, width, 26);
    at.fillStyle = ink.quiet;
    at.font = "12px system-ui, sans-serif";
    const { step, at: moments } = ticks(start, end, Math.max(2, width / 110));
    for (const ms of moments) at.fillText(step < 1000 ? clock(ms).slice(3) : clock(ms).slice(0, 8), x(ms) + 3, 17);
  }

  drawNames() {
    put(this.names, this.order.map((life) => {
      const id = `${life.controller}\n${life.key}`;
      const slash = life.key.indexOf("/");
      const [namespace, name] = [life.key.slice(0, Math.max(0, slash)), life.key.slice(slash + 1)];
      const bad = life.loops ? "↻ loops" : life.failures ? `✕ ${life.failures}` : "";
      return h("button", { "aria-pressed": String(id === this.selected), title: `${life.controller}: ${life.key}`, onclick: () => this.choose(life) },
        h("span", { class: "k" }, name, h("small", {}, [namespace, life.controller].filter(Boolean).join(" · "))), bad && h("span", { class: "bad" }, bad), h("span", { class: "c" }, count(life.reconciles)));
    }), this.order.length === 0 && h("p", { class: "empty" }, "No key has moved yet."));
  }

  /** What happened to the key that is chosen, in words. */
  tellStory() {
    const life = this.lives.all.get(this.selected);
    this.detail.hidden = !life;
    if (!life) return;
    const told = `${this.selected} ${life.facts.length} ${life.last}`;
    if (told === this.told || String(document.getSelection()) !== "") return;
    this.told = told;
    const facts = life.facts.filter((/** @type {any} */ fact) => fact.event.type !== "phase" || ["queued", "held", "heldDirty"].includes(fact.event.phase)).slice(-150).reverse();
    const list = this.detail.querySelector(".story");
    const top = list?.scrollTop ?? 0;
    const story = h("ol", { class: "story", tabindex: "0", "aria-label": "What happened to it" }, facts.map((/** @type {any} */ fact) => {
      const { stage, text, isBad } = tell(fact.event);
      return h("li", { class: [isBad && "bad", fact.event.type === "reconcileStarted" && "first"].filter(Boolean).join(" ") },
        h("time", {}, clock(fact.ms)), h("span", { class: `tag${isBad ? " bad" : ""}` }, stage), h("span", { class: "what" }, text), fact.event.changed?.length > 0 && changes(fact.event.changed));
    }));
    put(this.detail,
      h("div", { class: "panel-head" }, h("h2", {}, `${life.key}, by ${life.controller}`), h("span", { class: "quiet" }, `${some(life.reconciles, "reconcile")}, ${some(life.failures, "failure")}, ${some(life.writes, "write")}; newest first`),
        h("button", { onclick: () => this.choose(life) }, "Close")), story);
    story.scrollTop = top;
  }

  legend() {
    const one = (/** @type {string} */ text, /** @type {any} */ life) => {
      const canvas = h("canvas", { "aria-hidden": "true" });
      this.samples = [...(this.samples ?? []), { canvas, life }];
      return h("span", {}, canvas, text);
    };
    const piece = (/** @type {string} */ is, isBad = false) => ({ pieces: [{ is, from: 4, to: isBad ? 12 : 22, isBad }], marks: [] });
    const mark = (/** @type {string} */ is) => ({ pieces: [], marks: [{ is, at: 13 }] });
    const legend = h("div", { class: "legend", role: "note" }, one("event", mark("event")), one("its own write came back", mark("own")), one("ready, waits for a worker", piece("queue")), one("reconcile", piece("run")), one("failed", piece("run", true)),
      one("write", mark("write")), one("write that changed nothing", mark("nothing")), one("write refused or lost", mark("refused")), one("held until its writes are seen", piece("hold")), one("waits for its time", piece("wait")),
      h("span", {}, "Drag to move; Ctrl and wheel, or + and −, to zoom."));
    const draw = () => {
      for (const { canvas, life } of this.samples ?? []) {
        const at = sharp(canvas, 26, 16);
        at.save();
        at.translate(0, life.marks.length && ["event", "own"].includes(life.marks[0].is) ? 2 : life.marks.length ? 8 - ROW + 7 : 8 - ROW / 2);
        drawLife(at, life, 0, (ms) => ms, 26, 0, colours());
        at.restore();
      }
    };
    window.addEventListener("themechange", draw);
    requestAnimationFrame(draw);
    return legend;
  }
}

/** Fields that were changed, before and after. @param {any[]} changed */
export function changes(changed) {
  return h("div", { class: "diff" }, changed.map((it) => h("div", {}, h("span", { class: "p mono" }, it.path), it.before !== null && it.before !== undefined && h("del", { class: "mono" }, it.before), it.after !== null && it.after !== undefined && h("ins", { class: "mono" }, it.after))));
}

