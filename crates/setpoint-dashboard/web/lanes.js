// Facts as lives of keys, and how a life is drawn.

/**
 * @typedef {{is: string, from: number, to: number | null, isBad?: boolean, id?: number}} Piece
 * @typedef {{is: string, at: number}} Mark
 * @typedef {{controller: string, key: string, pieces: Piece[], marks: Mark[], facts: any[], kinds: Set<string>, last: number, first: number, drawnFrom: number,
 *   reconciles: number, failures: number, loops: number, writes: number}} Life
 */

/** How many keys are followed, and how much of each: a hot key has some nine pieces and two marks a round. */
const MOST_LIVES = 3000;
const MOST_PIECES = 1200;
const MOST_MARKS = 600;
const MOST_FACTS = 400;

export class Lives {
  constructor() {
    /** @type {Map<string, Life>} */
    this.all = new Map();
  }

  clear() {
    this.all.clear();
  }

  /** @param {any} fact */
  hear(fact) {
    const { event, ms } = fact;
    const controller = event.controller ?? event.queue;
    if (event.type === "queueShutDown" || event.type === "missed") {
      for (const life of this.all.values()) if (event.type === "missed" || life.controller === controller) endAll(life, ms);
      return;
    }
    if (!controller || !event.key) return;
    const life = this.life(controller, event.key, ms);
    life.last = ms;
    keep(life.facts, fact, MOST_FACTS);
    switch (event.type) {
      case "added":
        keepMark(life, { is: event.reason.isOwnWrite ? "own" : "event", at: ms });
        if (event.reason.resource) life.kinds.add(event.reason.resource);
        break;
      case "delayed": end(life, "wait", ms); begin(life, { is: "wait", from: ms, to: ms + event.delay / 1e6 }); break;
      case "phase": this.turn(life, event.phase, ms); break;
      case "held": end(life, "hold", ms); begin(life, { is: "hold", from: ms, to: null }); break;
      case "released": end(life, "hold", ms, event.isLate); break;
      case "reconcileStarted": begin(life, { is: "run", from: ms, to: null, id: event.id }); break;
      case "reconcileEnded": {
        const isBad = event.result.is.startsWith("failed") || event.result.is === "cutOff";
        end(life, "run", ms, isBad);
        life.reconciles += 1;
        life.failures += isBad ? 1 : 0;
        break;
      }
      case "write": keepMark(life, { is: event.result.isUnchanged ? "nothing" : event.result.is === "written" || event.result.is === "gone" ? "write" : "refused", at: ms }); life.writes += 1; break;
      case "finding": if (event.finding.is === "selfTriggered") life.loops += 1; break;
      default: break;
    }
  }

  /** @param {Life} life @param {string} phase @param {number} ms */
  turn(life, phase, ms) {
    if (phase === "queued") begin(life, { is: "queue", from: ms, to: null });
    else if (phase !== "held" && phase !== "heldDirty") end(life, "queue", ms);
    if (phase === "queued" || phase === "processing") end(life, "wait", ms);
  }

  /** @param {string} controller @param {string} key @param {number} ms */
  life(controller, key, ms) {
    const id = `${controller}\n${key}`;
    let life = this.all.get(id);
    if (!life) {
      life = { controller, key, pieces: [], marks: [], facts: [], kinds: new Set(), first: ms, last: ms, drawnFrom: 0, reconciles: 0, failures: 0, loops: 0, writes: 0 };
    } else this.all.delete(id);
    // The last one to be heard of is the last one to be forgotten.
    this.all.set(id, life);
    if (this.all.size > MOST_LIVES) this.all.delete(/** @type {string} */ (this.all.keys().next().value));
    return life;
  }
}

/** Says what is not kept any more. @template T @param {T[]} list @param {T} item @param {number} most @returns {T | undefined} */
function keep(list, item, most) {
  list.push(item);
  return list.length > most ? list.shift() : undefined;
}

/** @param {Life} life @param {Piece} piece */
function begin(life, piece) {
  const gone = keep(life.pieces, piece, MOST_PIECES);
  // Nothing is drawn of a time of which something is missing: writes without their reconciles would be another story.
  if (gone) life.drawnFrom = Math.max(life.drawnFrom, gone.to ?? gone.from);
}

/** @param {Life} life @param {Mark} mark */
function keepMark(life, mark) {
  const gone = keep(life.marks, mark, MOST_MARKS);
  if (gone) life.drawnFrom = Math.max(life.drawnFrom, gone.at);
}

/** @param {Life} life @param {string} is @param {number} ms @param {boolean} [isBad] */
function end(life, is, ms, isBad) {
  const open = life.pieces.findLast((piece) => piece.is === is);
  if (!open || (open.to !== null && open.to < ms)) return;
  open.to = ms;
  if (isBad) open.isBad = true;
}

/** @param {Life} life @param {number} ms */
function endAll(life, ms) {
  for (const piece of life.pieces) if (piece.to === null || piece.to > ms) piece.to = ms;
}

export const ROW = 44;
/** Marks that are nearer than this are drawn as one. */
const NEAR = 3;

/** @type {{text: string, quiet: string, line: string, run: string, bad: string, hold: string, wait: string, write: string} | null} */
let ink = null;
window.addEventListener("themechange", () => (ink = null));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (ink = null));

/** The colours of the theme, as a canvas takes them. */
export function colours() {
  if (ink) return ink;
  const probe = document.body.appendChild(document.createElement("span"));
  const named = (/** @type {string} */ name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  ink = { text: named("text"), quiet: named("quiet"), line: named("line"), run: named("accent"), bad: named("bad"), hold: named("hold"), wait: named("warn"), write: named("good") };
  probe.remove();
  return ink;
}

/**
 * Draws one life into a row. What is good and what is bad differ in shape, not in colour alone.
 * @param {CanvasRenderingContext2D} at @param {Life} life @param {number} top @param {(ms: number) => number} x
 * @param {number} width @param {number} now @param {ReturnType<typeof colours>} ink
 */
export function drawLife(at, life, top, x, width, now, ink) {
  const middle = top + ROW / 2;
  /** @type {Record<string, number>} */
  const drawn = {};
  for (const piece of life.pieces) {
    const from = x(piece.from);
    const to = x(piece.to ?? now);
    // What would be drawn upon the same pixel is not drawn again.
    if (to < 0 || from > width || piece.from < life.drawnFrom || (!piece.isBad && to < (drawn[piece.is] ?? -99))) continue;
    drawn[piece.is] = Math.max(to, from + 3);
    drawPiece(at, piece, Math.max(-9, from), Math.min(width + 9, Math.max(to, from + 3)), middle, ink);
  }
  /** @type {Record<string, number>} */
  const last = {};
  for (const mark of life.marks) {
    const place = x(mark.at);
    if (place < -6 || place > width + 6 || mark.at < life.drawnFrom || place - (last[mark.is] ?? -99) < NEAR) continue;
    last[mark.is] = place;
    drawMark(at, mark, place, top, ink);
  }
}

/** @param {CanvasRenderingContext2D} at @param {Piece} piece @param {number} from @param {number} to @param {number} middle @param {ReturnType<typeof colours>} ink */
function drawPiece(at, piece, from, to, middle, ink) {
  at.setLineDash([]);
  if (piece.is === "run") {
    at.fillStyle = piece.isBad ? ink.bad : ink.run;
    at.beginPath();
    at.roundRect(from, middle - 6, to - from, 12, Math.min(3, (to - from) / 2));
    at.fill();
    if (piece.isBad) {
      // A cross tells a failure to those who do not see that it is red.
      at.strokeStyle = ink.bad;
      at.lineWidth = 2;
      at.beginPath();
      at.moveTo(to + 2, middle - 5); at.lineTo(to + 9, middle + 5);
      at.moveTo(to + 9, middle - 5); at.lineTo(to + 2, middle + 5);
      at.stroke();
    }
    return;
  }
  at.lineWidth = piece.is === "queue" ? 4 : 2;
  at.strokeStyle = piece.is === "hold" ? (piece.isBad ? ink.bad : ink.hold) : piece.is === "wait" ? ink.wait : ink.quiet;
  at.setLineDash(piece.is === "hold" ? [2, 3] : piece.is === "wait" ? [7, 4] : []);
  at.beginPath();
  at.moveTo(from, middle);
  at.lineTo(to, middle);
  at.stroke();
  at.setLineDash([]);
  if (piece.is === "hold" && piece.isBad) {
    // A bar across its end: the limit was reached.
    at.beginPath();
    at.moveTo(to, middle - 7); at.lineTo(to, middle + 7);
    at.moveTo(to - 4, middle - 7); at.lineTo(to - 4, middle + 7);
    at.stroke();
  }
}

/** @param {CanvasRenderingContext2D} at @param {Mark} mark @param {number} x @param {number} top @param {ReturnType<typeof colours>} ink */
function drawMark(at, mark, x, top, ink) {
  at.lineWidth = 1.25;
  at.beginPath();
  if (mark.is === "event" || mark.is === "own") {
    // From above: something happened. An own write that came back is hollow.
    at.moveTo(x - 3.5, top + 5); at.lineTo(x + 3.5, top + 5); at.lineTo(x, top + 11); at.closePath();
    at.fillStyle = at.strokeStyle = ink.text;
    if (mark.is === "event") at.fill();
    at.stroke();
    return;
  }
  const y = top + ROW - 9;
  at.moveTo(x, y - 4); at.lineTo(x + 4, y); at.lineTo(x, y + 4); at.lineTo(x - 4, y); at.closePath();
  at.fillStyle = at.strokeStyle = mark.is === "refused" ? ink.bad : ink.write;
  if (mark.is === "write") at.fill();
  at.stroke();
  if (mark.is === "refused") {
    at.beginPath(); at.moveTo(x - 2.5, y); at.lineTo(x + 2.5, y); at.stroke();
  }
}

/** A canvas that is sharp. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function sharp(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * density), Math.round(height * density)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const at = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  at.setTransform(density, 0, 0, density, 0, 0);
  at.clearRect(0, 0, width, height);
  return at;
}

/** Moments for an axis: round ones, not too many. @param {number} from @param {number} to @param {number} most */
export function ticks(from, to, most) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5];
  const step = steps.find((it) => (to - from) / it <= most) ?? 36e5;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return { step, at: found };
}
