// The life of each key: event, reasons, wait, reconcile, writes, hold, seen.

import { h, patch, put, say } from "./dom.js";
import { Lives, ROW, colours, drawLife, sharp, ticks } from "./lanes.js";
import { story } from "./story.js";
import { clock, count, some, tell } from "./words.js";

/** How many lanes are shown at first. */
const LANES = 20;
/** How much time is shown at first, and within which bounds. */
const SHOWN = 30_000;
const SHORTEST = 20;
const LONGEST = 30 * 60_000;
/** How often the order of lanes may change. */
const ORDER_EVERY = 2000;
/** How often the time line moves on though nothing happens. */
const MOVE_EVERY = 60;
const AXIS = 30;
/** How near the pointer has to be to what is told of. */
const NEAR = 10;

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
    this.dirty = true;
    this.frame = 0;
    for (const fact of stream.facts) this.lives.hear(fact);
    stream.addEventListener("facts", (event) => {
      const before = this.lives.all.size;
      for (const fact of /** @type {CustomEvent} */ (event).detail) this.lives.hear(fact);
      // A key that is new is shown at once.
      if (this.lives.all.size !== before) this.ordered = 0;
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
    const change = () => { this.ordered = 0; this.go(); };
    const choice = (/** @type {string} */ label, /** @type {string[][]} */ options) => h("select", { "aria-label": label, onchange: change }, options.map(([value, text]) => h("option", { value }, text)));
    this.controller = choice("Controller", [["", "every controller"]]);
    this.kind = choice("Kind", [["", "any kind"]]);
    this.namespace = h("input", { type: "search", placeholder: "namespace", "aria-label": "Namespace", onchange: change });
    this.key = h("input", { type: "search", placeholder: "part of a key", "data-main": true, "aria-label": "Key", onchange: change });
    this.outcome = choice("Outcome", [["", "any outcome"], ["failed", "failed"], ["loop", "loops"], ["writes", "wrote something"]]);
    this.sort = choice("Order", [["", "latest first"], ["busiest", "busiest first"], ["name", "by name"]]);
    this.live = h("button", { "aria-pressed": "true", onclick: () => this.stop(this.end === null ? this.stream.now() : null) }, "● Live");
    const tool = (/** @type {string} */ label, /** @type {string} */ sign, /** @type {() => void} */ act) => h("button", { title: label, "aria-label": label, onclick: act }, sign);
    const zoom = h("span", { class: "joined", role: "group", "aria-label": "Time line" },
      tool("Earlier", "←", () => this.pan(-0.5)), tool("Later", "→", () => this.pan(0.5)), tool("Zoom in", "+", () => this.zoom(0.5)), tool("Zoom out", "−", () => this.zoom(2)));
    const share = h("button", { onclick: () => this.share(share) }, "Copy link");
    this.summary = h("p", { class: "ask" });
    this.axis = h("canvas", { class: "axis", "aria-hidden": "true" });
    this.names = h("div", { class: "lane-names" });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.field = h("div", { class: "lane-canvas" }, this.canvas, this.tip);
    this.more = h("button", { hidden: true, onclick: () => { this.lanes += LANES; this.ordered = 0; this.dirty = true; } }, "Show more keys");
    this.detail = h("section", { class: "card inspector", hidden: true });
    this.title = h("h2", {});
    this.counts = h("p", { class: "quiet" });
    this.list = h("ol", { class: "story", tabindex: "0", "aria-label": "What happened to it, newest first" });
    put(this.detail, h("div", { class: "panel-head" }, h("div", {}, this.title, this.counts), h("button", { onclick: () => this.choose(this.lives.all.get(this.selected)) }, "Close")), this.list);
    this.hear();
    this.body = h("div", { class: "lives" },
      h("div", {}, h("div", { class: "lanes" }, h("div", { class: "corner" }, h("span", {}, "key"), h("span", { title: "How often it was reconciled" }, "times")), this.axis, this.names, this.field), this.more, this.legend()),
      this.detail);
    return h("div", { onkeydown: (/** @type {KeyboardEvent} */ event) => this.press(event) },
      h("div", { class: "head" }, h("div", {}, h("h1", {}, "Keys"), this.summary), h("div", { class: "bar" }, this.live, zoom, share)),
      h("div", { class: "bar spread" }, h("div", { class: "filters" }, this.controller, this.kind, this.namespace, this.key, this.outcome, this.sort)),
      this.body);
  }

  hear() {
    this.canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const box = this.canvas.getBoundingClientRect();
      this.zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
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
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  /** Tells what is under the pointer. @param {number} x @param {number} y */
  point(x, y) {
    const life = this.order[Math.floor(y / ROW)];
    const width = this.field.clientWidth;
    const end = this.end ?? this.stream.now();
    const place = (/** @type {any} */ fact) => ((fact.ms - end + this.length) / this.length) * width;
    const told = (life?.facts ?? []).filter((/** @type {any} */ fact) => fact.event.type !== "phase");
    let best = null;
    for (const fact of told) if (Math.abs(place(fact) - x) <= (best ? Math.abs(place(best) - x) : NEAR)) best = fact;
    this.tip.hidden = !best;
    if (!best) return;
    const { stage, text } = tell(best.event);
    say(this.tip, `${clock(best.ms)}  ${stage}: ${text}`);
    this.tip.style.left = x < width / 2 ? `${x + 12}px` : "auto";
    this.tip.style.right = x < width / 2 ? "auto" : `${width - x + 12}px`;
    this.tip.style.top = `${Math.max(0, y + 14)}px`;
  }

  /** @param {URLSearchParams} query */
  show(query) {
    const text = (/** @type {string} */ name) => query.get(name) ?? "";
    this.fill(text("controller"), text("kind"));
    this.namespace.value = text("namespace");
    this.key.value = text("key");
    this.outcome.value = text("outcome");
    this.sort.value = text("sort");
    this.selected = text("open");
    if (query.has("length")) this.length = Math.min(LONGEST, Math.max(SHORTEST, Number(query.get("length")) || SHOWN));
    if (query.has("end")) this.stop(Number(query.get("end")) || null);
    this.stream.narrow({ controller: text("controller"), namespace: text("namespace"), key: text("key") });
    this.ordered = 0;
    this.dirty = true;
    this.told = "";
    if (!this.frame) this.tick();
  }

  hide() {
    cancelAnimationFrame(this.frame ?? 0);
    this.frame = 0;
    this.tip.hidden = true;
    this.stream.narrow({ controller: "", namespace: "", key: "" });
  }

  /** What can be chosen from. @param {string} controller @param {string} kind */
  fill(controller, kind) {
    const controllers = new Set((this.stream.state?.queues ?? []).map((/** @type {any} */ it) => it.queue));
    for (const it of this.stream.state?.totals.controllers ?? []) controllers.add(it.controller);
    const kinds = new Set((this.stream.state?.caches ?? []).map((/** @type {any} */ it) => it.resource));
    const options = (/** @type {HTMLSelectElement} */ select, /** @type {Set<string>} */ all, /** @type {string} */ chosen) => {
      if (chosen) all.add(chosen);
      const sorted = [...all].sort();
      // Replacing the options would close a list that is open.
      if (select.options.length !== sorted.length + 1) put(select, select.options[0], sorted.map((name) => h("option", { value: name }, name)));
      if (select.value !== chosen) select.value = chosen;
    };
    options(this.controller, controllers, controller);
    options(this.kind, kinds, kind);
  }

  query() {
    const query = new URLSearchParams();
    const set = (/** @type {string} */ name, /** @type {string} */ value) => value && query.set(name, value);
    set("controller", this.controller.value);
    set("kind", this.kind.value);
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
    say(this.live, this.end === null ? "● Live" : "▶ Go live");
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
    if (/** @type {HTMLElement} */ (event.target).closest("input, select, .story") || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowLeft") this.pan(-0.25);
    else if (event.key === "ArrowRight") this.pan(0.25);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "Escape" && this.selected) this.choose(this.lives.all.get(this.selected));
    else return;
    event.preventDefault();
  }

  /** @param {any} life */
  choose(life) {
    if (!life) return;
    const id = idOf(life);
    this.selected = this.selected === id ? "" : id;
    this.go();
  }

  tick() {
    this.frame = requestAnimationFrame((time) => {
      // What is new is drawn at once; a time line that only moves on need not move with every frame.
      if (this.dirty || (this.end === null && time - (this.drawn ?? 0) > MOVE_EVERY)) {
        this.drawn = time;
        this.dirty = false;
        this.draw();
      }
      this.tick();
    });
  }

  sorted() {
    const [outcome, kind, namespace, key] = [this.outcome.value, this.kind.value, this.namespace.value.trim(), this.key.value.trim()];
    const fits = (/** @type {any} */ life) => (!this.controller.value || life.controller === this.controller.value) && (!key || life.key.includes(key)) &&
      (!namespace || life.key.startsWith(`${namespace}/`)) && (!kind || life.kinds.has(kind)) &&
      (!outcome || (outcome === "failed" ? life.failures > 0 : outcome === "loop" ? life.loops > 0 : life.writes > 0));
    const all = [...this.lives.all.values()].filter(fits);
    const by = /** @type {Record<string, (a: any, b: any) => number>} */ ({
      "": (a, b) => b.last - a.last, busiest: (a, b) => b.reconciles - a.reconciles || b.last - a.last,
      name: (a, b) => (a.controller + a.key < b.controller + b.key ? -1 : 1),
    });
    return all.sort(by[this.sort.value] ?? by[""]);
  }

  draw() {
    const now = this.stream.now();
    // By our own clock: that of what is shown may stand still.
    const looked = performance.now();
    if (this.ordered === 0 || (looked - this.ordered > ORDER_EVERY && !this.names.matches(":hover, :focus-within"))) {
      this.ordered = looked;
      this.fill(this.controller.value, this.kind.value);
      const all = this.sorted();
      this.order = all.slice(0, this.lanes);
      this.more.hidden = all.length <= this.lanes;
      const left = this.stream.leftOut ? `; ${count(this.stream.leftOut)} facts left out, narrow it down to see all` : "";
      say(this.summary, `Why each was reconciled, and what came of it. ${some(all.length, "key")}${left}.`);
    }
    this.drawNames();
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
      if (n < this.order.length - 1) {
        at.strokeStyle = ink.line;
        at.lineWidth = 1;
        at.beginPath(); at.moveTo(0, (n + 1) * ROW - 0.5); at.lineTo(width, (n + 1) * ROW - 0.5); at.stroke();
      }
      drawLife(at, life, n * ROW, x, width, now, ink);
    });
    this.tellStory();
  }

  /** @param {number} start @param {number} end @param {number} width @param {(ms: number) => number} x @param {any} ink */
  drawAxis(start, end, width, x, ink) {
    const at = sharp(this.axis, width, AXIS);
    at.fillStyle = ink.quiet;
    at.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const { step, at: moments } = ticks(start, end, Math.max(2, width / 110));
    for (const ms of moments) {
      const text = step < 1000 ? clock(ms).slice(3) : clock(ms).slice(0, 8);
      if (x(ms) + 4 + at.measureText(text).width <= width) at.fillText(text, x(ms) + 4, 19);
    }
  }

  drawNames() {
    patch(this.names, this.order.map((life) => {
      const id = idOf(life);
      const slash = life.key.indexOf("/");
      const [namespace, name] = [life.key.slice(0, Math.max(0, slash)), life.key.slice(slash + 1)];
      const bad = life.loops ? ["↻", h("span", { class: "word" }, "loops")] : life.failures ? [`✕ ${count(life.failures)}`] : null;
      return h("button", { "data-key": id, "aria-pressed": String(id === this.selected), title: `${life.controller}: ${life.key}`, onclick: () => this.choose(life) },
        h("span", { class: "k" }, name, h("small", {}, [life.controller, namespace].filter(Boolean).join(" · "))), bad && h("span", { class: "tag bad" }, ...bad), h("span", { class: "c" }, count(life.reconciles)));
    }), this.order.length === 0 && h("p", { class: "empty" }, "No key has been enqueued yet."));
  }

  /** What happened to the key that is chosen, in words. */
  tellStory() {
    const life = this.lives.all.get(this.selected);
    this.detail.hidden = !life;
    this.body.classList.toggle("open", !!life);
    if (!life) return;
    const told = `${this.selected} ${life.facts.length} ${life.last} ${life.facts.at(-1)?.number}`;
    if (told === this.told) return;
    this.told = told;
    say(this.title, life.key);
    say(this.counts, `by ${life.controller}: ${some(life.reconciles, "reconcile")}, ${some(life.failures, "failure")}, ${some(life.writes, "write")}. Newest first.`);
    patch(this.list, story(life));
  }

  legend() {
    const one = (/** @type {string} */ text, /** @type {any} */ life) => {
      const canvas = h("canvas", { "aria-hidden": "true" });
      this.samples = [...(this.samples ?? []), { canvas, life }];
      return h("span", {}, canvas, text);
    };
    const piece = (/** @type {string} */ is, isBad = false) => ({ pieces: [{ is, from: 4, to: isBad && is === "run" ? 12 : 22, isBad }], marks: [] });
    const mark = (/** @type {string} */ is) => ({ pieces: [], marks: [{ is, at: 13 }] });
    const legend = h("div", { class: "legend", role: "note" }, one("event", mark("event")), one("event of its own write", mark("own")), one("waits for a worker", piece("queue")), one("reconcile", piece("run")), one("failed", piece("run", true)),
      one("write", mark("write")), one("changed nothing", mark("nothing")), one("refused or lost", mark("refused")), one("held until the caches observe its writes", piece("hold")), one("held too long", piece("hold", true)), one("delayed", piece("wait")));
    const draw = () => {
      for (const { canvas, life } of this.samples ?? []) {
        const at = sharp(canvas, 26, 16);
        at.save();
        at.translate(0, life.marks.length && ["event", "own"].includes(life.marks[0].is) ? 0 : life.marks.length ? 8 - ROW + 9 : 8 - ROW / 2);
        drawLife(at, life, 0, (ms) => ms, 26, 0, colours());
        at.restore();
      }
    };
    window.addEventListener("themechange", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    requestAnimationFrame(draw);
    return legend;
  }
}

/** @param {any} life */
const idOf = (life) => `${life.controller}\n${life.key}`;
