// Asks the server again when something has happened.

/** How soon after the last question the next one is asked. */
const SOON = 80;
/** How often it is asked though nothing happens: times go on. */
const QUIET = 1000;
/** Asking takes at most one part in so many of the time: what is expensive is asked for less often. */
const PART = 8;
const LATEST = 4000;

/** Calls `look` soon after each fact or number that the stream brings, as long as it is started. */
export class Follow {
  /** @param {import("./stream.js").Stream} stream @param {() => Promise<void>} look */
  constructor(stream, look) {
    this.stream = stream;
    this.look = look;
    this.isLooking = false;
    this.next = 0;
    /** @type {any} */
    this.timer = 0;
    this.hear = () => this.soon();
  }

  start() {
    this.stop();
    for (const name of ["facts", "state"]) this.stream.addEventListener(name, this.hear);
    this.isOn = true;
    this.next = 0;
    this.soon();
  }

  stop() {
    this.isOn = false;
    clearTimeout(this.timer);
    this.timer = 0;
    for (const name of ["facts", "state"]) this.stream.removeEventListener(name, this.hear);
  }

  /** Looks as soon as it may. */
  soon() {
    this.hasNews = true;
    if (!this.isOn || this.isLooking || document.hidden) return;
    const wait = this.next - performance.now();
    if (wait <= 0) this.turn();
    else if (!this.timer || this.isQuiet) this.later(wait, false);
  }

  /** @param {number} wait @param {boolean} isQuiet */
  later(wait, isQuiet) {
    clearTimeout(this.timer);
    this.isQuiet = isQuiet;
    this.timer = setTimeout(() => this.turn(), wait);
  }

  async turn() {
    clearTimeout(this.timer);
    this.timer = 0;
    if (!this.isOn || this.isLooking) return;
    this.isLooking = true;
    this.hasNews = false;
    const begun = performance.now();
    try {
      await this.look();
    } finally {
      this.isLooking = false;
      const took = performance.now() - begun;
      this.next = begun + took + Math.min(LATEST, Math.max(SOON, (PART - 1) * took));
      if (this.isOn && !this.timer) this.later(this.hasNews ? this.next - performance.now() : QUIET, !this.hasNews);
    }
  }
}
