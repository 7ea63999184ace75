// A list of any length, of which only what is seen is made.

import { h, patch } from "./dom.js";

/** How many rows more than are seen are made. */
const MORE = 10;
/** Taller elements than this are cut off by browsers. */
const TALLEST = 8_000_000;

/**
 * `fetch(offset, limit)` gives `{rows, matches}`; `draw(row)` makes the content of a row; `open(row)` is called when one is chosen.
 */
export class VirtualList extends HTMLElement {
  /** @type {{label: string, fetch: (offset: number, limit: number) => Promise<{rows: any[], matches: number}>,
   *   draw: (row: any) => (Node | string)[], open?: (row: any) => void, isOpen?: (row: any) => boolean}} */
  options = { label: "", fetch: async () => ({ rows: [], matches: 0 }), draw: () => [] };
  /** @type {{from: number, to: number, rows: any[], first: number} | null} what was fetched */
  fetched = null;
  /** As the style has it. */
  rowHeight = 36;
  total = 0;
  at = -1;
  asked = 0;
  isWaiting = false;
  isStale = true;
  /** @type {any} */
  viewport = null;

  /** @param {VirtualList["options"]} options @returns {VirtualList} */
  static make(options) {
    const list = /** @type {any} */ (document.createElement("sp-list"));
    list.options = options;
    return list;
  }

  connectedCallback() {
    if (this.viewport) {
      this.watch?.observe(this.viewport);
      this.later();
      return;
    }
    const { label } = this.options;
    this.space = h("div", { class: "space" });
    this.rows = h("div", { class: "rows" });
    this.space.append(this.rows);
    this.viewport = h("div", { class: "viewport", tabindex: "0", role: "listbox", "aria-label": label,
      onscroll: () => this.later(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event) }, this.space);
    this.append(this.viewport);
    this.watch = new ResizeObserver(() => this.later());
    this.watch.observe(this.viewport);
    this.refresh();
  }

  disconnectedCallback() {
    this.watch?.disconnect();
  }

  /** Fetches what is seen again; the old rows stay until the new ones are there. */
  async refresh() {
    this.isStale = true;
    if (this.viewport) await this.show();
  }

  /** Shows something else from now on: a click must not meet a row of before. */
  async restart() {
    this.fetched = null;
    this.total = 0;
    this.at = -1;
    if (this.viewport) {
      patch(this.rows);
      this.viewport.scrollTop = 0;
    }
    await this.refresh();
  }

  later() {
    if (this.isWaiting || !this.viewport) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.show();
    });
  }

  /** How many pixels of the bar one row is: less than its height, if there are too many. */
  scale() {
    return Math.min(this.rowHeight, TALLEST / Math.max(1, this.total));
  }

  async show() {
    const { viewport } = this;
    const seen = Math.max(1, Math.ceil(viewport.clientHeight / this.rowHeight));
    const first = Math.floor(viewport.scrollTop / this.scale());
    const last = Math.max(0, this.total - seen);
    const from = Math.max(0, Math.min(first, last) - MORE);
    const to = from + seen + 2 * MORE;
    if (!this.isStale && this.fetched && from >= this.fetched.from && to <= this.fetched.to + MORE && this.fetched.first === first) return;
    const has = !this.isStale && this.fetched && from >= this.fetched.from && Math.min(to, this.total) <= this.fetched.to;
    if (!has) {
      const asked = ++this.asked;
      this.isStale = false;
      let found;
      try {
        found = await this.options.fetch(from, to - from + 2 * MORE);
      } catch (error) {
        patch(this.rows, h("p", { class: "empty" }, String(/** @type {Error} */ (error).message)));
        return;
      }
      // A newer question has been asked meanwhile.
      if (asked !== this.asked) return;
      this.total = found.matches;
      this.fetched = { from, to: from + found.rows.length, rows: found.rows, first };
      this.space.style.height = `${Math.min(TALLEST, this.total * this.rowHeight)}px`;
    }
    if (!this.fetched) return;
    this.fetched.first = first;
    this.draw(first);
  }

  /** @param {number} first */
  draw(first) {
    if (!this.fetched) return;
    const { from, rows } = this.fetched;
    if (rows.length === 0) {
      patch(this.rows, h("p", { class: "empty" }, "There is nothing that matches."));
      return;
    }
    const top = this.scale() < this.rowHeight ? first * this.scale() - (first - from) * this.rowHeight : from * this.rowHeight;
    this.rows.style.transform = `translateY(${Math.max(0, top)}px)`;
    patch(this.rows, rows.map((/** @type {any} */ row, /** @type {number} */ n) => {
      const number = from + n;
      return h("div", { class: "row", role: "option", id: `${this.rowId()}-${number}`, "aria-setsize": this.total,
        "aria-posinset": number + 1, "aria-selected": String(number === this.at || !!this.options.isOpen?.(row)),
        onclick: () => { this.at = number; this.choose(row); } }, this.options.draw(row));
    }));
    if (this.at >= from && this.at < from + rows.length) this.viewport.setAttribute("aria-activedescendant", `${this.rowId()}-${this.at}`);
    else this.viewport.removeAttribute("aria-activedescendant");
  }

  rowId() {
    this.id ||= `list-${Math.random().toString(36).slice(2)}`;
    return this.id;
  }

  /** @param {any} row */
  choose(row) {
    this.options.open?.(row);
    if (this.fetched) this.draw(this.fetched.first);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const page = Math.max(1, Math.floor(this.viewport.clientHeight / this.rowHeight) - 1);
    const steps = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity });
    if (event.key === "Enter" || event.key === " ") {
      const row = this.fetched?.rows[this.at - this.fetched.from];
      if (row) this.choose(row);
    } else if (event.key in steps) {
      this.at = Math.max(0, Math.min(this.total - 1, this.at + steps[event.key]));
      const top = this.at * this.scale();
      const bottom = top + this.rowHeight;
      if (top < this.viewport.scrollTop) this.viewport.scrollTop = top;
      else if (bottom > this.viewport.scrollTop + this.viewport.clientHeight) this.viewport.scrollTop = bottom - this.viewport.clientHeight;
      if (this.fetched) this.draw(Math.floor(this.viewport.scrollTop / this.scale()));
      this.later();
    } else return;
    event.preventDefault();
  }
}

customElements.define("sp-list", VirtualList);
