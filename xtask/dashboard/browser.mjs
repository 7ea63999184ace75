// Chromium, by its DevTools protocol over a pipe: no driver, no library.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LIMIT = 30_000;

export class Browser {
  /** @param {string} program */
  constructor(program) {
    this.folder = mkdtempSync(join(tmpdir(), "setpoint-dashboard-"));
    const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--ignore-certificate-errors",
      "--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe", `--user-data-dir=${this.folder}`, "about:blank"];
    this.process = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.next = 0;
    this.waiting = new Map();
    this.listeners = [];
    let text = Buffer.alloc(0);
    // Who dies while it is spoken to says so by its answers, which do not come.
    for (const pipe of this.process.stdio.slice(3)) pipe.on("error", () => {});
    this.process.stdio[4].on("data", (bytes) => {
      text = Buffer.concat([text, bytes]);
      for (let end = text.indexOf(0); end >= 0; end = text.indexOf(0)) {
        this.hear(JSON.parse(text.subarray(0, end).toString()));
        text = text.subarray(end + 1);
      }
    });
  }

  hear(message) {
    if (message.id) {
      const { resolve, reject } = this.waiting.get(message.id) ?? {};
      this.waiting.delete(message.id);
      if (message.error) reject?.(new Error(message.error.message));
      else resolve?.(message.result);
    } else for (const listener of this.listeners) listener(message);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.next;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${method}: no answer`)), LIMIT);
      this.waiting.set(id, { resolve: (it) => { clearTimeout(timer); resolve(it); }, reject: (it) => { clearTimeout(timer); reject(it); } });
    });
  }

  async page() {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId);
    await Promise.all(["Page", "Runtime", "Log", "Network"].map((domain) => page.send(`${domain}.enable`)));
    return page;
  }

  close() {
    this.process.kill("SIGKILL");
    try {
      rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
    } catch {
      // It is in the folder for temporary files.
    }
  }
}

export class Page {
  constructor(browser, session) {
    this.browser = browser;
    this.session = session;
    /** What the console complained of. */
    this.complaints = [];
    /** While a server is away, a browser complains that it is. */
    this.mayBeAway = false;
    /** What it asked servers for, newest last. */
    this.asked = [];
    browser.listeners.push((message) => message.sessionId === session && this.hear(message));
  }

  hear({ method, params }) {
    if (method === "Network.requestWillBeSent") this.asked.push(params.request.url);
    if (method === "Runtime.exceptionThrown") this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) this.complaints.push(params.args.map((it) => it.value ?? it.description).join(" "));
    if (method === "Log.entryAdded" && params.entry.level === "error") {
      const isNetwork = params.entry.source === "network";
      if (!(isNetwork && this.mayBeAway)) this.complaints.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    }
  }

  send(method, params) {
    return this.browser.send(method, params, this.session);
  }

  async open(url) {
    await this.send("Page.navigate", { url });
    await this.until("document.readyState === 'complete'", "the page is loaded");
  }

  /** The value of an expression in the page. */
  async see(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Waits until an expression is true. */
  async until(expression, what, limit = 15_000) {
    const end = Date.now() + limit;
    for (;;) {
      try {
        const value = await this.see(expression);
        if (value) return value;
      } catch (error) {
        if (Date.now() > end) throw error;
      }
      if (Date.now() > end) throw new Error(`${what}: not within ${limit} ms; the page says: ${(await this.see(`[...document.querySelectorAll("#notice, main h1, main h2, main h3, main p, main .row, main li, main td")].filter((it) => it.checkVisibility()).map((it) => it.innerText).join(" | ")`)).slice(0, 900)}`);
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  }

  /** A click as a user does it: in the middle of what is seen. */
  async click(selector) {
    await this.until(`!!document.querySelector(${JSON.stringify(selector)})`, `there is ${selector}`);
    const box = await this.see(`(() => { const it = document.querySelector(${JSON.stringify(selector)}); it.scrollIntoView({block: "center"}); const b = it.getBoundingClientRect(); return {x: b.x + b.width / 2, y: b.y + b.height / 2}; })()`);
    for (const type of ["mousePressed", "mouseReleased"]) await this.send("Input.dispatchMouseEvent", { type, ...box, button: "left", clickCount: 1 });
  }

  async key(key) {
    const text = key.length === 1 ? key : key === "Enter" ? "\r" : undefined;
    const code = { Tab: 9, Enter: 13, Escape: 27 }[key];
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", key, text, code: key, windowsVirtualKeyCode: code });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", key, code: key, windowsVirtualKeyCode: code });
  }

  async size(width, height, isDark) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: isDark ? "dark" : "light" }] });
  }

  async shot(options = { format: "png" }) {
    const { data } = await this.send("Page.captureScreenshot", options);
    return Buffer.from(data, "base64");
  }
}
