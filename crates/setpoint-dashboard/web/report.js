// A finding of a simulation: both timelines, walked through line by line.

import { h, put, say } from "./dom.js";

/** Larger files are no reports. */
const MOST_BYTES = 20_000_000;
/** How long a line is shown while it goes on by itself: what takes hours is not waited for. */
const SHORTEST = 60;
const LONGEST = 2000;

export class Report {
  constructor() {
    const file = h("input", { type: "file", accept: ".json,application/json", "aria-label": "A report of a simulation", onchange: () => this.open(file.files[0]) });
    this.said = h("p", { role: "status", class: "bad" });
    this.body = h("div", {});
    this.element = h("section", { class: "card" }, h("h2", {}, "Walk through a simulation"),
      h("p", { class: "ask" }, "Open the .json report of a finding to go through the run without faults and the run with them, side by side, in virtual time. It stays in this browser. ", h("code", {}, "SETPOINT_SIM_REPORT=DIR cargo test"), " and ", h("code", {}, "cargo xtask explore --report DIR"), " write them."),
      h("p", {}, file), this.said, this.body);
    this.at = 0;
    /** How much faster than virtual time it goes; nothing while it stands. */
    this.speed = 0;
    /** @type {any[]} */
    this.rows = [];
  }

  /** @param {File | undefined} file */
  async open(file) {
    say(this.said, "");
    this.run(0);
    put(this.body);
    if (!file) return;
    try {
      if (file.size > MOST_BYTES) throw new Error("the file is too large for a report");
      const report = JSON.parse(await file.text());
      if (!Array.isArray(report.rows)) throw new Error("the file has no timelines");
      this.show(report);
    } catch (error) {
      say(this.said, `This is no report: ${/** @type {Error} */ (error).message}. Open a .json file that an exploration wrote.`);
    }
  }

  /** @param {any} report */
  show(report) {
    this.rows = report.rows;
    const first = this.rows.findIndex((row) => !row.without || !row.with);
    this.table = h("tbody", {}, this.rows.map((row, n) => h("tr", { class: row.without && row.with ? "" : "differs", onclick: () => this.go(n) }, cell(row.without), cell(row.with))));
    this.where = h("span", { class: "quiet", role: "status" });
    this.slide = h("input", { type: "range", min: "0", max: String(this.rows.length - 1), "aria-label": "Line", oninput: () => this.go(Number(this.slide.value)) });
    const speeds = [[1, "as it was"], [10, "10 times as fast"], [0.1, "10 times as slow"]];
    this.pace = h("select", { "aria-label": "Speed", onchange: () => this.speed && this.run(Number(this.pace.value)) }, speeds.map(([value, text]) => h("option", { value }, text)));
    this.playing = h("button", { class: "main", onclick: () => this.run(this.speed ? 0 : Number(this.pace.value)) }, "▶ Play");
    put(this.body, h("h3", {}, report.name), h("ul", { class: "plain" }, report.faults.map((/** @type {string} */ it) => h("li", { class: "bad" }, `✗ ${it}`)), report.violations.map((/** @type {any} */ it) => h("li", {}, h("strong", {}, it.oracle), ": ", it.why.join("; ")))),
      h("div", { class: "bar spread" }, h("span", { class: "bar" }, this.playing, this.pace, h("span", { class: "joined" }, h("button", { onclick: () => this.go(this.at - 1) }, "← Back"), h("button", { onclick: () => this.go(this.at + 1) }, "Next →")), h("button", { onclick: () => this.next() }, "Next difference")), this.slide, this.where),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Both timelines", onkeydown: (/** @type {KeyboardEvent} */ event) => this.press(event) }, h("table", { class: "walk" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "without faults"), h("th", { scope: "col" }, "with them"))), this.table)),
      report.test && h("details", {}, h("summary", {}, "As a test"), h("pre", { tabindex: "0" }, report.test)));
    this.go(Math.max(0, first));
  }

  /** Goes on by itself, in virtual time. @param {number} speed */
  run(speed) {
    clearTimeout(this.timer);
    this.speed = this.at < this.rows.length - 1 ? speed : 0;
    if (this.playing) say(this.playing, this.speed ? "❚❚ Pause" : "▶ Play");
    if (!this.speed) return;
    const wait = (1000 * (secondsOf(this.rows[this.at + 1]) - secondsOf(this.rows[this.at]))) / this.speed;
    this.timer = setTimeout(() => {
      this.go(this.at + 1);
      this.run(this.speed);
    }, Math.min(LONGEST, Math.max(SHORTEST, wait)));
  }

  next() {
    const after = this.rows.findIndex((row, n) => n > this.at && !(row.without && row.with));
    if (after >= 0) this.go(after);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.key === "ArrowDown") this.go(this.at + 1);
    else if (event.key === "ArrowUp") this.go(this.at - 1);
    else return;
    event.preventDefault();
  }

  /** @param {number} n */
  go(n) {
    this.at = Math.max(0, Math.min(this.rows.length - 1, n));
    [...this.table.children].forEach((row, at) => {
      row.classList.toggle("now", at === this.at);
      row.classList.toggle("later", at > this.at);
    });
    this.slide.value = String(this.at);
    const row = this.rows[this.at];
    say(this.where, `line ${this.at + 1} of ${this.rows.length}, at ${secondsOf(row).toFixed(3)} s`);
    // Only the table scrolls: the page stays where it is.
    const [line, box] = [/** @type {HTMLElement} */ (this.table.children[this.at]), this.table.closest(".scroll")];
    if (line && box) box.scrollTop = line.offsetTop - box.clientHeight / 2;
  }
}

/** @param {any} row */
const secondsOf = (row) => (row.with ?? row.without).seconds;

/** @param {any} line */
function cell(line) {
  if (!line) return h("td", { class: "quiet" }, "–");
  return h("td", {}, h("time", {}, `${line.seconds.toFixed(3)} s`), h("strong", {}, line.who), " ", h("span", { class: line.isFault ? "fault" : "" }, line.what));
}
