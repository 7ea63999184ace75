// A demo to play with, and reports of simulations to walk through.

import { ask, h, put, say } from "./dom.js";
import { Report } from "./report.js";

export class PlayView {
  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.stream = stream;
    this.head = h("h1", {}, "Play");
    this.said = h("p", { role: "status", class: "quiet" });
    this.time = h("div", { class: "bar" });
    this.groups = h("div", { class: "groups" });
    this.status = h("dl", { class: "facts" });
    this.stage = h("div", { hidden: true }, this.time, h("section", { class: "card" }, this.status), h("p", {}, this.said), this.groups);
    this.report = new Report();
    this.element = h("div", {}, h("div", { class: "bar" }, this.head), this.stage, this.report.element);
    /** @type {Map<string, any>} */
    this.values = new Map();
    this.drawn = "";
  }

  show() {
    this.look();
    clearInterval(this.timer);
    this.timer = setInterval(() => this.look(), 400);
  }

  hide() {
    clearInterval(this.timer);
  }

  async look() {
    const canPlay = this.stream.state?.canPlay;
    this.stage.hidden = !canPlay;
    say(this.head, canPlay ? "Play" : "Simulations");
    if (!canPlay || document.hidden) return;
    try {
      this.draw(await ask("/api/play"));
    } catch {
      // The frame says that the server does not answer.
    }
  }

  /** @param {any} scene */
  draw(scene) {
    say(this.head, scene.title);
    const drawn = JSON.stringify([scene.buttons, scene.isPaused, scene.slowMs]);
    put(this.status, scene.status.map((/** @type {[string, string]} */ [name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const speeds = [[0, "full speed"], [150, "slow: 0.15 s a hop"], [500, "slower: 0.5 s a hop"], [1500, "slowest: 1.5 s a hop"]];
    put(this.time,
      h("button", { "aria-pressed": String(scene.isPaused), onclick: () => this.act(scene.isPaused ? "resume" : "pause") }, scene.isPaused ? "Go on" : "Pause"),
      h("button", { disabled: !scene.isPaused, onclick: () => this.act("step") }, "Step"),
      h("label", {}, "Speed", h("select", { onchange: (/** @type {Event} */ event) => this.act("slow", Number(/** @type {HTMLSelectElement} */ (event.target).value)) }, speeds.map(([ms, text]) => h("option", { value: ms, selected: ms === scene.slowMs }, text)))));
    const groups = new Map();
    for (const button of scene.buttons) groups.set(button.group, [...(groups.get(button.group) ?? []), button]);
    put(this.groups, [...groups].map(([name, buttons]) => h("section", { class: "card" }, h("h2", {}, name), h("div", { class: "play" }, buttons.map((/** @type {any} */ button) => this.button(button)).flat()))));
  }

  /** @param {any} button */
  button(button) {
    const value = button.value === null ? null : h("input", { type: "number", min: "0", max: "50", value: this.values.get(button.act) ?? button.value, "aria-label": `${button.label}: how many`, oninput: (/** @type {any} */ event) => this.values.set(button.act, event.target.value) });
    return [h("div", { class: "do" }, h("button", { "data-act": button.act, onclick: () => this.act(button.act, value && Number(value.value)) }, button.label), value), h("p", {}, button.help)];
  }

  /** @param {string} act @param {number | null} [value] */
  async act(act, value = null) {
    try {
      const { said } = await ask("/api/play", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ act, value }) });
      this.said.className = "quiet";
      say(this.said, said);
    } catch (error) {
      this.said.className = "bad";
      say(this.said, String(/** @type {Error} */ (error).message));
    }
    this.look();
  }
}
