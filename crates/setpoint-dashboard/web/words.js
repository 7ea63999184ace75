// Facts, numbers and times as people read them.

/** @param {number} ms */
export function span(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms === 0) return "0 ms";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} days`;
}

/** Nanoseconds, as facts have them. @param {number | null | undefined} ns */
export const nanos = (ns) => (ns === null || ns === undefined ? "–" : span(ns / 1e6));

/** @param {number} n */
export function count(n) {
  if (n < 10_000) return String(Math.round(n));
  if (n < 1_000_000) return `${(n / 1000).toFixed(n < 100_000 ? 1 : 0)}k`;
  return `${(n / 1_000_000).toFixed(1)}M`;
}

/** @param {number} n */
export const rate = (n) => (n === 0 ? "0/s" : n < 10 ? `${n.toFixed(1)}/s` : `${count(n)}/s`);

/** One thing, several things. @param {number} n @param {string} one @param {string} [many] */
export const some = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** The time of day, to the millisecond. @param {number} ms */
export function clock(ms) {
  const date = new Date(ms);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const fraction = String(date.getMilliseconds()).padStart(3, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${fraction}`;
}

/** @param {any} reason */
export function reason(reason) {
  const what = [reason.resource, reason.object, reason.cause].filter(Boolean).join(" ");
  const by = reason.manager ? ` by ${reason.manager}` : "";
  return `${what}${by}${reason.isOwnWrite ? " (own write)" : ""}`;
}

/** @param {any} reasons */
export function because(reasons) {
  if (!reasons || (reasons.all.length === 0 && !reasons.more)) return "no reason given";
  const more = reasons.more ? `, and ${reasons.more} more` : "";
  return reasons.all.map(reason).join(", ") + more;
}

/** @param {any} state */
export function reflector(state) {
  if (!state) return "not started";
  switch (state.is) {
    case "listing": return state.isStreaming ? "lists, as a streaming list" : "lists";
    case "listed": return `listed ${some(state.objects, "object")}`;
    case "watching": return "watches";
    case "failed": return `failed: ${state.error}; ${state.listsNext ? "lists" : "watches"} again in ${nanos(state.pause)}`;
    case "panicked": return `panicked: ${state.error}`;
    case "stopped": return "has stopped";
    default: return state.is;
  }
}

/** @param {any} cache */
export const cacheName = (cache) => (cache.namespace ? `${cache.resource} in ${cache.namespace}` : cache.resource);

/** What a list and watch is known by. @param {number} id @param {string | null} namespace */
export const scopeKey = (id, namespace) => `${id} ${namespace ?? ""}`;

/** Whose cache it is: the names of its handlers; others have numbers. @param {any} cache */
export const usersOf = (cache) => cache.handlers.map((/** @type {any} */ it) => it.handler).filter((/** @type {string} */ name) => !/^\d*$/.test(name)).join(", ");

/** @param {any} awaited */
export function awaited(awaited) {
  const gone = awaited.object ? `, without ${awaited.object}` : "";
  return `the cache of ${cacheName(awaited.cache)} is at version ${awaited.version} or later${gone}`;
}

/** @param {any} result */
export function outcome(result) {
  switch (result.is) {
    case "done": return "done";
    case "requeueAfter": return `done, again in ${nanos(result.delay)}`;
    case "failed": return `failed: ${result.error}`;
    case "failedForGood": return `failed, and is not retried: ${result.error}`;
    case "cutOff": return "cut off";
    default: return result.is;
  }
}

/** @param {any} write */
export function written(write) {
  const where = [write.resource, write.object].filter(Boolean).join(" ");
  const part = write.subresource ? ` (${write.subresource})` : "";
  const head = `${write.method} ${where}${part}`;
  switch (write.result.is) {
    case "written":
      if (write.result.isUnchanged) return `${head}: changed nothing`;
      return `${head}: version ${write.result.version}`;
    case "gone": return `${head}: deleted`;
    case "refused": return `${head}: refused with ${write.result.code} ${write.result.reason}`;
    case "unknown": return `${head}: the answer was lost`;
    default: return head;
  }
}

const PHASES = {
  absent: "not in the queue", queued: "ready", processing: "being processed", dirty: "added again while being processed",
  holding: "to be held when it is done", holdingDirty: "to be held, and added again",
  held: "held until the caches observe its writes", heldDirty: "held, and added again",
};

/** @param {string} phase */
export const phase = (phase) => /** @type {Record<string, string>} */ (PHASES)[phase] || phase;

/**
 * What a fact says: the stage that it is of, a sentence, and whether it is bad.
 * @param {any} event @returns {{stage: string, text: string, isBad?: boolean}}
 */
export function tell(event) {
  switch (event.type) {
    case "reflector": return { stage: "reflector", text: `${cacheName(event.cache)} ${reflector(event.state)}`, isBad: event.state.is === "failed" || event.state.is === "panicked" };
    case "received": return { stage: "reflector", text: `the watch of ${cacheName(event.cache)} received ${some(event.changes.count, "change")}` };
    case "applied": return { stage: "cache", text: `${cacheName(event.cache)} is at version ${event.version ?? "–"}: ${some(event.changes.count, "change")}${event.isList ? " by a list" : ""}` };
    case "handler": return { stage: "informer", text: `${some(event.backlog, "change")} of ${event.resource} not delivered to ${event.handler} yet` };
    case "added": return { stage: "event", text: `${reason(event.reason)}${event.isCoalesced ? " (coalesced)" : ""}` };
    case "phase": return { stage: "queue", text: phase(event.phase) };
    case "delayed": return { stage: "queue", text: `delayed by ${nanos(event.delay)}: ${event.cause}` };
    case "held": return { stage: "hold", text: `held until ${event.until.map(awaited).join(", and ")}` };
    case "released": return { stage: "seen", text: `held for ${nanos(event.waited)}${event.isLate ? ": the caches did not observe it in time" : ": the caches have observed it"}`, isBad: event.isLate };
    case "reconcileStarted": return { stage: "reconcile", text: `#${event.id} starts, because: ${because(event.reasons)}${event.retries ? `; a retry after ${some(event.retries, "failure")}` : ""}` };
    case "reconcileEnded": return { stage: "reconcile", text: `#${event.id} took ${nanos(event.took)}: ${outcome(event.result)}`, isBad: event.result.is.startsWith("failed") };
    case "write": return { stage: "write", text: written(event), isBad: event.result.is !== "written" && event.result.is !== "gone" };
    case "finding": return { stage: "finding", text: event.finding.is === "selfTriggered" ? `a loop: nothing but its own writes to ${event.finding.resource} ${event.finding.object}, ${event.finding.times} times in a row` : `a write to ${event.finding.resource} ${event.finding.object} changed nothing`, isBad: true };
    case "work": return { stage: "controller", text: `${event.controller}: ${event.state === "working" ? "working" : event.state === "stopped" ? "stopped" : "waits until its caches have caught up"}` };
    case "leadership": return { stage: "controller", text: event.state.is === "leading" ? `${event.identity} holds the lease ${event.lease}` : `the lease ${event.lease} is held by ${event.state.leader ?? "nobody"}` };
    case "queueShutDown": return { stage: "queue", text: `${event.queue} is shut down` };
    case "missed": return { stage: "stream", text: `${some(event.count, "fact")} missed`, isBad: true };
    default: return { stage: "other", text: event.type };
  }
}
