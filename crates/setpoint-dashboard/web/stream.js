// What the server sends, and who wants to know.

import { Source } from "./source.js";

/**
 * @typedef {{number: number, at: string, event: any, ms: number}} Fact
 * @typedef {{controller: string, key: string, namespace: string}} Filter
 */

/** How many facts a page keeps. */
const MOST = 20_000;
/** For how many seconds numbers are kept, for rates and small curves. */
const SECONDS = 60;

export class Stream extends EventTarget {
  constructor() {
    super();
    /** @type {any} the numbers as they are now */
    this.state = null;
    /** @type {Fact[]} */
    this.facts = [];
    /** @type {{at: number, values: Map<string, number>}[]} one a second, oldest first */
    this.samples = [];
    this.leftOut = 0;
    this.status = "connecting";
    /** The server's time when it was last heard, when that was, and how fast it goes: of a simulated world, not as fast as ours. */
    this.clock = { at: Date.now(), heard: performance.now(), rate: 1 };
    /** The number of the last fact: from there it goes on. */
    this.last = "";
    /** @type {Filter} */
    this.filter = { controller: "", key: "", namespace: "" };
    this.boot = "";
    this.source = new Source(() => this.address(), {
      state: (event) => this.hearState(JSON.parse(event.data)),
      facts: (event) => {
        // Facts come before the numbers: they are the first that another process says.
        this.hearBoot(event.lastEventId.split("-")[0]);
        this.last = event.lastEventId;
        this.hearFacts(JSON.parse(event.data));
      },
    }, (status) => this.turn(status));
  }

  address() {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...this.filter, after: this.last })) if (value) query.set(name, value);
    return `/api/stream?${query}`;
  }

  /** Only facts about some keys, all of them. @param {Filter} filter */
  narrow(filter) {
    const { controller, key, namespace } = this.filter;
    if (filter.controller === controller && filter.key === key && filter.namespace === namespace) return;
    this.filter = filter;
    this.facts = [];
    this.leftOut = 0;
    this.last = "";
    this.dispatchEvent(new Event("reset"));
    this.source.open();
  }

  /** @param {string} status */
  turn(status) {
    if (this.status === status) return;
    this.status = status;
    this.dispatchEvent(new Event("status"));
  }

  /** The server's time. */
  now() {
    return this.clock.at + (performance.now() - this.clock.heard) * this.clock.rate;
  }

  /** @param {number} at @param {number} rate how fast it shall go; with much to do, it goes as fast as it can */
  setClock(at, rate) {
    const heard = performance.now();
    const measured = (at - this.clock.at) / Math.max(1, heard - this.clock.heard);
    this.clock = { at, heard, rate: rate > 1 ? Math.max(0, Math.min(rate, measured)) : rate };
  }

  /** @param {any} state */
  hearState(state) {
    this.turn("live");
    this.setClock(state.now, state.rate ?? 1);
    this.hearBoot(state.boot);
    this.state = state;
    const last = this.samples.at(-1);
    const values = numbers(state);
    if (last && state.now - last.at < 1000) this.latest = { at: state.now, values };
    else {
      this.samples.push({ at: state.now, values });
      if (this.samples.length > SECONDS + 1) this.samples.shift();
    }
    this.dispatchEvent(new Event("state"));
  }

  /** Another process: what the last one did is history. @param {string} boot */
  hearBoot(boot) {
    if (this.boot && this.boot !== boot) {
      this.facts = [];
      this.samples = [];
      this.latest = undefined;
      this.leftOut = 0;
      this.dispatchEvent(new Event("reset"));
    }
    this.boot = boot;
  }

  /** @param {{facts: any[], leftOut: number}} sample */
  hearFacts(sample) {
    for (const fact of sample.facts) fact.ms = moment(fact.at);
    this.facts.push(...sample.facts);
    if (this.facts.length > MOST) this.facts.splice(0, this.facts.length - MOST);
    this.leftOut += sample.leftOut;
    this.dispatchEvent(new CustomEvent("facts", { detail: sample.facts }));
  }

  /** How much a total grew a second, over the last seconds. @param {string} name */
  rate(name, seconds = 5) {
    const end = this.latest && this.samples.length && this.latest.at > (this.samples.at(-1)?.at ?? 0) ? this.latest : this.samples.at(-1);
    if (!end) return 0;
    const start = this.samples.findLast((sample) => sample.at <= end.at - seconds * 1000) ?? this.samples[0];
    const time = (end.at - start.at) / 1000;
    if (time < 0.5) return 0;
    return Math.max(0, (end.values.get(name) ?? 0) - (start.values.get(name) ?? 0)) / time;
  }

  /** How much a total grew, second by second. @param {string} name @returns {number[]} */
  curve(name) {
    const grown = [];
    for (let n = 1; n < this.samples.length; n++) {
      const [from, to] = [this.samples[n - 1], this.samples[n]];
      const time = Math.max(0.5, (to.at - from.at) / 1000);
      grown.push(Math.max(0, (to.values.get(name) ?? 0) - (from.values.get(name) ?? 0)) / time);
    }
    return grown;
  }
}

/** A time as milliseconds, with what is below one, which `Date` leaves out. @param {string} text */
function moment(text) {
  const below = /\.\d{3}(\d+)/.exec(text);
  return Date.parse(text) + (below ? Number(`0.${below[1]}`) : 0);
}

/** Totals by name: in all, and by cache and controller. @param {any} state */
function numbers(state) {
  const values = new Map();
  const add = (/** @type {string} */ name, /** @type {number} */ n) => values.set(name, (values.get(name) ?? 0) + n);
  values.set("facts", state.totals.facts);
  for (const cache of state.totals.caches) {
    add("received", cache.received);
    add("applied", cache.applied);
    add(`received ${cache.resource}`, cache.received);
  }
  for (const it of state.totals.controllers) {
    for (const name of ["added", "coalesced", "reconciles", "failed", "writes", "unchanged"]) {
      add(name, it[name]);
      add(`${name} ${it.controller}`, it[name]);
    }
  }
  return values;
}
