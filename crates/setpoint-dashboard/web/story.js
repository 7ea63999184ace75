// The life of one key in words: each reconcile with what led to it and what came of it.

import { h } from "./dom.js";
import { because, clock, nanos, outcome, some, span, tell } from "./words.js";

/** How many reconciles are listed. */
const MOST = 40;
/** How many events of one reconcile are listed one by one. */
const MOST_EVENTS = 6;

/**
 * @typedef {{events: any[], waits: any[], readyAt: number | null, start: any, end: any, after: any[], released: any}} Round
 * @returns {Round}
 */
const round = () => ({ events: [], waits: [], readyAt: null, start: null, end: null, after: [], released: null });

/**
 * The facts of a key, by reconcile, oldest first. The last one may not have begun.
 * @param {any[]} facts @returns {Round[]}
 */
export function rounds(facts) {
  const all = [];
  let next = round();
  /** @type {Round | null} */
  let last = null;
  for (const fact of facts) {
    switch (fact.event.type) {
      case "added": next.events.push(fact); break;
      case "delayed": next.waits.push(fact); break;
      case "phase": if (fact.event.phase === "queued") next.readyAt ??= fact.ms; break;
      case "reconcileStarted":
        last = next;
        last.start = fact;
        all.push(last);
        next = round();
        break;
      case "reconcileEnded": if (last) last.end = fact; break;
      case "released": if (last) last.released = fact; break;
      default: last?.after.push(fact);
    }
  }
  if (next.events.length || next.waits.length) all.push(next);
  return all;
}

/** A story of a key, newest first. @param {any} life */
export function story(life) {
  const all = rounds(life.facts);
  return all.slice(-MOST).reverse().map(telling);
}

/** @param {Round} round */
function telling(round) {
  const { start, end } = round;
  const first = start ?? round.events[0] ?? round.waits[0];
  const isBad = !!end && (end.event.result.is.startsWith("failed") || end.event.result.is === "cutOff");
  const title = !start ? "Not reconciled yet" : `#${start.event.id} ${!end ? "is running" : isBad ? "failed" : outcome(end.event.result)}`;
  const took = end ? `took ${nanos(end.event.took)}` : "";
  return h("li", { class: "round", "data-key": start ? `r${start.event.id}` : "next" },
    h("header", {}, h("strong", { class: isBad ? "bad" : "" }, isBad ? `✕ ${title}` : title), h("span", { class: "quiet" }, took), h("time", {}, clock(first.ms))),
    isBad && h("p", { class: "bad" }, outcome(end.event.result)),
    h("ol", { class: "steps" }, steps(round)));
}

/** @param {Round} round */
function steps(round) {
  const { start } = round;
  const zero = (start ?? round.events[0] ?? round.waits[0]).ms;
  const found = round.events.slice(0, MOST_EVENTS).map((fact) => step(fact, zero));
  if (round.events.length > MOST_EVENTS) found.push(line("", "event", `and ${some(round.events.length - MOST_EVENTS, "event")} more`));
  found.push(...round.waits.map((fact) => step(fact, zero)));
  if (start) {
    const ready = round.readyAt === null ? "" : `ready for ${span(Math.max(0, start.ms - round.readyAt))}`;
    const tries = start.event.retries ? `; a retry after ${some(start.event.retries, "failure")}` : "";
    if (ready) found.push(line(offset(/** @type {number} */ (round.readyAt), zero), "wait", `${ready}, until a worker took it`));
    found.push(line(offset(start.ms, zero), "reconcile", `because: ${because(start.event.reasons)}${tries}`, "run"));
  }
  found.push(...round.after.filter((fact) => fact.event.type !== "phase").map((fact) => step(fact, zero)));
  if (round.released) found.push(step(round.released, zero));
  return found;
}

/** @type {Record<string, string>} */
const TAGS = { hold: "hold", seen: "hold", write: "good", reconcile: "run" };

/** @param {any} fact @param {number} zero */
function step(fact, zero) {
  const { stage, text, isBad } = tell(fact.event);
  const item = line(offset(fact.ms, zero), stage, text, isBad ? "bad" : TAGS[stage]);
  if (isBad) item.classList.add("bad");
  if (fact.event.changed?.length > 0) item.append(changes(fact.event.changed));
  return item;
}

/** @param {string} when @param {string} stage @param {string} text @param {string} [kind] */
function line(when, stage, text, kind = "") {
  return h("li", {}, h("time", {}, when), h("span", { class: `tag ${kind}` }, stage), h("span", { class: "what" }, text));
}

/** @param {number} ms @param {number} zero */
function offset(ms, zero) {
  const by = ms - zero;
  if (Math.abs(by) < 0.05) return "0 ms";
  return `${by < 0 ? "−" : "+"}${Math.abs(by) < 10 ? `${Math.abs(by).toFixed(1)} ms` : span(Math.abs(by))}`;
}

/** Fields that were changed, before and after. @param {any[]} changed */
export function changes(changed) {
  const has = (/** @type {any} */ value) => value !== null && value !== undefined;
  return h("div", { class: "diff" }, changed.map((it) => h("div", {}, h("span", { class: "p mono" }, it.path), has(it.before) && h("del", { class: "mono" }, it.before), has(it.after) && h("ins", { class: "mono" }, it.after))));
}
