// A demo to play with, and reports of simulations to walk through.

import { ask, h, patch, put, say } from "./dom.js";
import { Follow } from "./follow.js";
import { Report } from "./report.js";
import { Transport, act } from "./transport.js";
import { clock, tell } from "./words.js";

/** How many facts are told beside the buttons. */
const MOST = 60;
/** Of these there are too many to read: the others say what follows from them. */
const LEFT_OUT = ["phase", "received", "applied", "handler"];

export class PlayView {
  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.stream = stream;
    this.head = h("h1", {}, "Play");
    this.ask = h("p", { class: "ask" });
    this.said = h("p", { role: "status", class: "said quiet" });
    this.groups = h("section", { class: "card groups" });
    this.status = h("dl", { class: "facts" });
    this.ticker = h("ol", { class: "ticker", tabindex: "0", "aria-label": "What follows" });
    this.transport = new Transport(stream, (said, isBad) => this.tell(said, isBad));
    this.stage = h("div", { class: "playing", hidden: true }, this.groups,
      h("section", { class: "card" }, h("div", { class: "panel-head" }, h("div", {}, h("h2", {}, "What follows"), this.said), this.status), this.ticker));
    this.report = new Report();
    this.element = h("div", {}, h("div", { class: "head" }, h("div", {}, this.head, this.ask), this.transport.element), this.stage, this.report.element);
    /** @type {Map<string, any>} */
    this.values = new Map();
    this.drawn = "";
    /** @type {string[]} */
    this.controllers = [];
    this.follow = new Follow(stream, () => this.look());
    this.update = () => this.drawFacts();
  }

  show() {
    this.stream.addEventListener("facts", this.update);
    this.follow.start();
    this.transport.show();
  }

  hide() {
    this.stream.removeEventListener("facts", this.update);
    this.follow.stop();
    this.transport.hide();
  }

  async look() {
    const canPlay = !!this.stream.state?.canPlay;
    this.stage.hidden = !canPlay;
    if (!canPlay) {
      say(this.head, "Simulations");
      say(this.ask, "What happens if something fails, in virtual time.");
      return;
    }
    try {
      this.draw(await ask("/api/play"));
    } catch {
      // The frame says that the server does not answer.
    }
  }

  /** @param {any} scene */
  draw(scene) {
    say(this.head, scene.title);
    say(this.ask, "What happens if … ? Press something, and see what follows.");
    this.controllers = scene.controllers;
    patch(this.status, scene.status.map((/** @type {[string, string]} */ [name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    this.drawFacts();
    const drawn = JSON.stringify(scene.buttons);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const groups = new Map();
    for (const button of scene.buttons) groups.set(button.group, [...(groups.get(button.group) ?? []), button]);
    const focus = this.groups.contains(document.activeElement) ? document.activeElement?.getAttribute("data-act") : null;
    put(this.groups, [...groups].map(([name, buttons]) => h("section", {}, h("h2", {}, name), h("div", { class: "play" }, buttons.map((/** @type {any} */ button) => this.button(button)).flat()))));
    if (focus) /** @type {HTMLElement | null} */ (this.groups.querySelector(`[data-act=${focus}]`))?.focus();
  }

  /** What the controllers that are played with do, newest first. */
  drawFacts() {
    const found = [];
    const findings = new Set();
    for (let n = this.stream.facts.length - 1; n >= 0 && found.length < MOST; n--) {
      const { event } = this.stream.facts[n];
      const isMeant = event.type === "reflector" || event.type === "missed" || this.controllers.includes(event.controller ?? event.queue);
      // Of what is found again and again, the last time; whoever it is about.
      const isFound = event.type === "finding" && !findings.has(`${event.controller} ${event.key}`);
      if (isFound) findings.add(`${event.controller} ${event.key}`);
      if (isFound || (isMeant && event.type !== "finding" && !LEFT_OUT.includes(event.type))) found.push(this.stream.facts[n]);
    }
    patch(this.ticker, found.map((fact) => {
      const { stage, text, isBad } = tell(fact.event);
      const about = fact.event.key ? `${fact.event.key} ` : "";
      return h("li", { class: isBad ? "bad" : "", "data-key": String(fact.number) }, h("time", {}, clock(fact.ms)), h("span", { class: `tag ${isBad ? "bad" : ""}` }, stage), h("span", { class: "what" }, h("span", { class: "quiet" }, about), text));
    }), found.length === 0 && h("li", { class: "empty" }, "Nothing yet."));
  }

  /** @param {any} button */
  button(button) {
    const value = button.value === null ? null : h("input", { type: "number", min: "0", max: "50", value: this.values.get(button.act) ?? button.value, "aria-label": `${button.label}: how many`, oninput: (/** @type {any} */ event) => this.values.set(button.act, event.target.value) });
    return [h("div", { class: "do" }, h("button", { "data-act": button.act, onclick: () => this.act(button.act, value && Number(value.value)) }, button.label), value), h("p", {}, button.help)];
  }

  /** @param {string} name @param {number | null} [value] */
  async act(name, value = null) {
    try {
      this.tell(await act(name, value), false);
    } catch (error) {
      this.tell(String(/** @type {Error} */ (error).message), true);
    }
    this.look();
  }

  /** @param {string} said @param {boolean} isBad */
  tell(said, isBad) {
    this.said.className = isBad ? "said bad" : "said quiet";
    say(this.said, said);
  }
}
