// A finding of a simulation: both timelines, walked through line by line.

import { h, put, say } from "./dom.js";

/** Larger files are no reports. */
const MOST_BYTES = 20_000_000;

export class Report {
  constructor() {
    const file = h("input", { type: "file", accept: ".json,application/json", "aria-label": "A report of a simulation", onchange: () => this.open(file.files[0]) });
    this.said = h("p", { role: "status", class: "bad" });
    this.body = h("div", {});
    this.element = h("section", { class: "card" }, h("h2", {}, "Walk through a simulation"),
      h("p", { class: "quiet" }, "An exploration writes a report of each finding: cargo xtask explore --report DIR. Open one of its .json files to go through the run without faults and the run with them, side by side, in virtual time. It stays in this browser."),
      file, this.said, this.body);
    this.at = 0;
    /** @type {any[]} */
    this.rows = [];
  }

  /** @param {File | undefined} file */
  async open(file) {
    say(this.said, "");
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
    put(this.body, h("h3", {}, report.name), h("ul", {}, report.faults.map((/** @type {string} */ it) => h("li", { class: "bad" }, `✗ ${it}`)), report.violations.map((/** @type {any} */ it) => h("li", {}, h("strong", {}, it.oracle), ": ", it.why.join("; ")))),
      h("div", { class: "bar" }, h("button", { onclick: () => this.go(this.at - 1) }, "← Back"), h("button", { onclick: () => this.go(this.at + 1) }, "Next →"), h("button", { onclick: () => this.next() }, "Next difference"), this.slide, this.where),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Both timelines", onkeydown: (/** @type {KeyboardEvent} */ event) => this.press(event) }, h("table", { class: "walk" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "without faults"), h("th", { scope: "col" }, "with them"))), this.table)),
      report.test && h("details", {}, h("summary", {}, "As a test"), h("pre", { tabindex: "0" }, report.test)));
    this.go(Math.max(0, first));
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
    say(this.where, `line ${this.at + 1} of ${this.rows.length}, at ${(row.with ?? row.without).seconds.toFixed(3)} s`);
    this.table.children[this.at]?.scrollIntoView({ block: "nearest" });
  }
}

/** @param {any} line */
function cell(line) {
  if (!line) return h("td", { class: "quiet" }, "–");
  return h("td", {}, h("time", {}, `${line.seconds.toFixed(3)} s`), h("strong", {}, line.who), " ", h("span", { class: line.isFault ? "fault" : "" }, line.what));
}
