// Time, wherever there is something to play with: pause, step, slow motion, faster than ours, on to what comes next.

import { ask, h, put } from "./dom.js";

/** What is sent, with what, and how it is called: in slow motion each message takes longer, else all of time goes faster. @type {[string, number, string][]} */
const SPEEDS = [["slow", 1500, "slowest"], ["slow", 500, "slower"], ["slow", 150, "slow"], ["speed", 1, "real time"], ["speed", 10, "10 × faster"], ["speed", 100, "100 × faster"], ["speed", 1000, "1,000 × faster"]];
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
    const drawn = JSON.stringify([scene.isPaused, scene.slowMs, scene.speed]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const now = scene.slowMs ? ["slow", scene.slowMs] : ["speed", scene.speed ?? 1];
    // Where time is that of the machine, all that can be done is to slow messages down.
    const offered = SPEEDS.filter(([name, value]) => name === "slow" || value === 1 || scene.speed !== null);
    const speeds = offered.map(([name, value, text]) => h("option", { value: `${name} ${value}`, selected: name === now[0] && value === now[1] }, text));
    const isPaused = scene.isPaused;
    const focus = this.element.contains(document.activeElement) ? document.activeElement?.getAttribute("data-act") : null;
    put(this.element,
      h("button", { class: isPaused ? "main" : "", "data-act": "pause", title: isPaused ? "Time goes on, and messages pass" : "Time stands still, and no message passes", onclick: () => this.act(isPaused ? "resume" : "pause") }, isPaused ? "▶ Go on" : "❚❚ Pause"),
      h("button", { "data-act": "step", disabled: !isPaused, title: "Lets one message pass", onclick: () => this.act("step") }, "Step"),
      scene.speed !== null && h("button", { "data-act": "skip", title: "Time jumps to when the controller next begins a reconcile: a retry, a resync", onclick: () => this.act("skip") }, "Skip ahead"),
      h("select", { "aria-label": "Speed", "data-act": "speed", onchange: (/** @type {any} */ event) => { const [name, value] = event.target.value.split(" "); this.act(name, Number(value)); } }, speeds));
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
