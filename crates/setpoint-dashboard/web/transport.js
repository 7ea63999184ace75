// Pause, step and slow motion, wherever there is something to play with.

import { ask, h, put } from "./dom.js";

const SPEEDS = [[0, "full speed"], [150, "slow"], [500, "slower"], [1500, "slowest"]];
/** How often it is looked whether somebody else has paused it. */
const EVERY = 1000;

/** Does something in the demo. @param {string} act @param {number | null} [value] @returns {Promise<string>} what it says about it */
export async function act(act, value = null) {
  const { said } = await ask("/api/play", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ act, value }) });
  return said;
}

export class Transport {
  /** @param {import("./stream.js").Stream} stream @param {(said: string, isBad: boolean) => void} [tell] */
  constructor(stream, tell = () => {}) {
    this.stream = stream;
    this.tell = tell;
    this.drawn = "";
    this.element = h("div", { class: "transport", role: "group", "aria-label": "Time of the demo", hidden: true });
  }

  show() {
    this.hide();
    this.timer = setInterval(() => this.look(), EVERY);
    this.look();
  }

  hide() {
    clearInterval(this.timer);
  }

  async look() {
    this.element.hidden = !this.stream.state?.canPlay;
    if (this.element.hidden || document.hidden) return;
    try {
      this.draw(await ask("/api/play"));
    } catch {
      // The frame says that the server does not answer.
    }
  }

  /** @param {any} scene */
  draw(scene) {
    const drawn = JSON.stringify([scene.isPaused, scene.slowMs]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const speeds = SPEEDS.map(([ms, text]) => h("option", { value: ms, selected: ms === scene.slowMs }, text));
    const focus = this.element.contains(document.activeElement) ? document.activeElement?.getAttribute("data-act") : null;
    put(this.element,
      h("button", { class: scene.isPaused ? "main" : "", "data-act": "pause", onclick: () => this.act(scene.isPaused ? "resume" : "pause") }, scene.isPaused ? "▶ Go on" : "❚❚ Pause"),
      h("button", { "data-act": "step", disabled: !scene.isPaused, title: "Lets one message pass", onclick: () => this.act("step") }, "Step"),
      h("select", { "aria-label": "Speed", "data-act": "speed", onchange: (/** @type {any} */ event) => this.act("slow", Number(event.target.value)) }, speeds));
    if (focus) /** @type {HTMLElement | null} */ (this.element.querySelector(`[data-act=${focus}]`))?.focus();
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
}
