// The dashboard in a real browser. Prints "ok NAME (MS)", "FAIL NAME (MS): WHY" and "note TEXT", a line each.
//
// node suite.mjs --setpoint BINARY --crowd BINARY --chromium BINARY --axe FILE --shots FOLDER [--only PART]
//
// With --pictures docs/img it makes the pictures of the guides anew, and with --only none nothing else.

import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Browser } from "./browser.mjs";

const { values: options } = parseArgs({ options: { setpoint: { type: "string" }, crowd: { type: "string" }, chromium: { type: "string" }, axe: { type: "string" }, shots: { type: "string" }, pictures: { type: "string" }, only: { type: "string", default: "" } } });
const started = [];
let failures = 0;

/** A program that says its address. */
async function start(program, args, url = /https?:\/\/\S+/) {
  const process = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  started.push(process);
  let said = "";
  return new Promise((resolve, reject) => {
    const hear = (bytes) => {
      said += bytes;
      const found = url.exec(said);
      if (found) resolve({ process, url: found[1] ?? found[0] });
    };
    process.stdout.on("data", hear);
    process.stderr.on("data", hear);
    process.on("error", reject);
    process.on("exit", (code) => reject(new Error(`${program} ended with ${code}: ${said}`)));
    setTimeout(() => reject(new Error(`${program} did not say where it is: ${said}`)), 300_000).unref();
  });
}

function stop(process) {
  const ended = new Promise((resolve) => process.on("exit", resolve));
  process.kill("SIGTERM");
  return ended;
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.on("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function check(name, run) {
  if (!name.includes(options.only)) return;
  const begun = Date.now();
  try {
    await run();
    console.log(`ok ${name} (${Date.now() - begun} ms)`);
  } catch (error) {
    failures += 1;
    console.log(`FAIL ${name} (${Date.now() - begun} ms): ${String(error.message).replaceAll("\n", " ")}`);
  }
}

const assert = (is, why) => {
  if (!is) throw new Error(why);
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function quiet(page) {
  const said = page.complaints.splice(0);
  assert(said.length === 0, `the console says: ${said.join(" | ")}`);
}

const browser = new Browser(options.chromium);
try {
  const port = await freePort();
  let demo = await start(options.setpoint, ["demo", "--web", `127.0.0.1:${port}`]);
  const page = await browser.page();
  await page.size(1280, 900, false);
  await page.open(demo.url);
  const go = async (hash, until, what) => {
    await page.see(`location.hash = ${JSON.stringify(hash)}`);
    await page.until(until, what);
  };
  const text = (selector) => `(document.querySelector(${JSON.stringify(selector)})?.innerText ?? "")`;
  const play = (act, value = null) => page.see(`fetch("/api/play", {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(${JSON.stringify({ act, value })})}).then(async (it) => { const said = await it.json(); if (!it.ok) throw new Error(said.error); return said.said; })`);

  await check("the loop shows live numbers at each stage, and what is in it", async () => {
    await page.until(`/[1-9]\\d* watches/.test(${text("#stage-reflector")})`, "watches are counted");
    await page.until(`/[1-9]\\d* objects/.test(${text("#stage-indexer")})`, "objects are counted");
    for (const [stage, shown] of [["reflector", "foos.samplecontroller.k8s.io"], ["fifo", "from watch to cache"], ["informer", "deployment"], ["queue", "ready"], ["controller", "foo"], ["server", "changed nothing"], ["indexer", "default/example-foo"]]) {
      await page.click(`#stage-${stage}`);
      if (stage === "indexer") {
        await page.until(`!!document.querySelector("select[aria-label=Cache]")`, "a cache can be chosen");
        await page.see(`(() => { const it = document.querySelector("select[aria-label=Cache]"); it.value = [...it.options].find((o) => o.text.startsWith("foos")).value; it.dispatchEvent(new Event("change")); })()`);
      }
      await page.until(`${text("section.card")}.includes(${JSON.stringify(shown)})`, `${stage} shows ${shown}`);
    }
    quiet(page);
  });

  await check("a change is on the page within 200 ms", async () => {
    await go("#/keys?controller=foo&key=example-foo&open=" + encodeURIComponent("foo\ndefault/example-foo"), `document.querySelectorAll(".story li").length > 0`, "the story of the key");
    const times = [];
    for (let n = 0; n < 9; n++) {
      const took = await page.see(`new Promise((resolve, reject) => {
        const before = document.querySelector(".story li time").innerText;
        const begun = performance.now();
        const look = () => { if (document.querySelector(".story li time")?.innerText !== before) resolve(performance.now() - begun); else if (performance.now() - begun > 5000) reject(new Error("nothing came")); else requestAnimationFrame(look); };
        fetch("/api/play", {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({act: "scale", value: ${2 - (n % 2)}})}).then(look);
      })`);
      times.push(took);
      await pause(1200);
    }
    times.sort((a, b) => a - b);
    console.log(`note from the change to the page: ${times.map((it) => it.toFixed(0)).join(", ")} ms`);
    assert(times[4] < 200, `half of the changes took longer than ${times[4].toFixed(0)} ms`);
    quiet(page);
  });

  await check("the life of a key has reasons, reconciles, writes with diffs, holds", async () => {
    await play("scale", 4);
    await go("#/keys?controller=deployment-controller", `document.querySelectorAll(".lane-names button").length > 0`, "lanes of the deployment controller");
    await page.click(".lane-names button");
    for (const word of ["because:", "replicasets.apps", "took", "held for"]) await page.until(`${text(".story")}.includes(${JSON.stringify(word)})`, `the story says ${word}`);
    await page.until(`document.querySelectorAll(".story .diff ins").length > 0`, "a write shows what it changed");
    const drawn = await page.see(`(() => { const c = document.querySelector(".lane-canvas canvas"); const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n; })()`);
    assert(drawn > 500, `only ${drawn} pixels of the time line are drawn`);
    await page.see(`document.querySelector("button[aria-label='Zoom in']").click()`);
    await page.see(`[...document.querySelectorAll("button")].find((it) => it.innerText === "Copy link").click()`);
    await page.until(`location.hash.includes("end=") && location.hash.includes("length=")`, "the link has the time");
    const link = await page.see("location.href");
    await page.open("about:blank");
    await page.open(link);
    await page.until(`${text(".story")}.includes("because:")`, "the link opens the same life");
    quiet(page);
  });

  await check("objects: owners, field managers, history with diffs, events", async () => {
    await go("#/objects?resource=pods", `document.querySelectorAll(".row").length > 0`, "pods are listed");
    await page.click(".row");
    await page.until(`document.querySelectorAll(".tree li").length >= 4`, "Foo, Deployment, ReplicaSet and Pod are in the tree");
    await page.until(`${text(".tree")}.includes("Running")`, "a pod's state is shown");
    await page.see(`[...document.querySelectorAll(".tree button")].find((it) => it.innerText.includes("Foo")).click()`);
    await page.until(`${text("section:last-of-type h2")}.startsWith("foos")`, "a click opens the owner");
    await page.until(`${text(".story")}.includes("as it was")`, "the first state is there");
    await play("scale", 3);
    await page.until(`${text(".story")}.includes("spec.replicas")`, "a change is shown with its field");
    await page.see(`[...document.querySelectorAll(".tabs button")].find((it) => it.innerText.startsWith("Who")).click()`);
    await page.until(`${text("section:last-of-type")}.includes("spec.replicas") && ${text("section:last-of-type")}.includes("you")`, "the manager of a field is named");
    await page.see(`[...document.querySelectorAll(".tabs button")].find((it) => it.innerText === "Events").click()`);
    await page.until(`${text("section:last-of-type")}.includes("Synced")`, "its events are there");
    quiet(page);
  });

  await check("a hot loop is found and named in three clicks", async () => {
    await page.open(demo.url);
    await page.until(`document.querySelector(".status").innerText === "live"`, "the page is live");
    await page.click("a[href='#/play']");
    await page.click("button[data-act=loop]");
    await page.click("a[href='#/findings']");
    await page.until(`!!document.querySelector("[data-kind=loop]")`, "the loop is found");
    const said = await page.see(text("[data-kind=loop]"));
    for (const word of ["stamp", "default/stamped", "configmaps", "data.lastReconcile"]) assert(said.includes(word), `${said} does not name ${word}`);
    await play("clash");
    await page.until(`${text("[data-kind=failing]")}.includes("default/clash")`, "a key that fails is found", 30_000);
    quiet(page);
  });

  await check("everything that can be played does what it says", async () => {
    for (const [act, value] of [["pause"], ["step"], ["resume"], ["slow", 10], ["slow", 0], ["cut-watch"], ["expire-watch"], ["lose-answer"], ["scale", 2], ["delete-pod"], ["crash"]]) await play(act, value ?? null);
    await go("#/loop?stage=reflector", `${text("section.card")}.includes("foos")`, "the watches are shown");
    await page.until(`[...document.querySelectorAll("section.card tr")].some((it) => it.innerText.startsWith("foos") && it.innerText.includes("watches"))`, "the controller watches again after all that");
    quiet(page);
  });

  await check("a report of a simulation is walked through", async () => {
    await go("#/play", `!!document.querySelector("input[type=file]")`, "a file can be opened");
    const row = (n, both) => ({ without: both ? { seconds: n, who: "foo", what: `<b>line</b> ${n}`, isFault: false } : null, with: { seconds: n, who: "foo", what: `<b>line</b> ${n}`, isFault: !both } });
    const report = { name: "foo::crash", faults: ["killed after POST"], violations: [{ oracle: "converges", why: ["two deployments"] }], rows: [row(0.1, true), row(0.2, false), row(0.3, true)], test: "#[test]" };
    await page.see(`(() => { const input = document.querySelector("input[type=file]"); const files = new DataTransfer(); files.items.add(new File([${JSON.stringify(JSON.stringify(report))}], "a.json")); input.files = files.files; input.dispatchEvent(new Event("change")); })()`);
    await page.until(`${text(".walk tr.now")}.includes("<b>line</b> 0.2")`, "it begins at the first difference");
    quiet(page);
  });

  await check("the keyboard reaches everything", async () => {
    await page.open(demo.url);
    await page.until(`document.querySelector(".status").innerText === "live"`, "the page is live");
    for (const [key, title] of [["2", "The life of each key"], ["3", "Objects"], ["4", "Findings"], ["1", "The loop, live"]]) {
      await page.key(key);
      await page.until(`${text("h1")} === ${JSON.stringify(title)}`, `${key} opens ${title}`);
    }
    await page.key("3");
    await page.until(`!!document.querySelector("input[type=search]")`, "objects");
    await page.key("/");
    await page.until(`document.activeElement.type === "search"`, "the search has the focus");
    quiet(page);
  });

  const views = [["loop", "#/loop?stage=controller", "section.card td"], ["keys", "#/keys?sort=busiest", ".lane-names button"], ["objects", "#/objects?resource=pods", ".row"], ["findings", "#/findings", ".finding"], ["play", "#/play", ".groups button"]];
  mkdirSync(options.shots, { recursive: true });
  const axe = readFileSync(options.axe, "utf8");
  for (const [width, height] of [[1280, 900], [390, 844]]) {
    for (const isDark of [false, true]) {
      const how = `${width}-${isDark ? "dark" : "light"}`;
      await check(`nothing is cut off, and axe finds nothing: ${how}`, async () => {
        await page.size(width, height, isDark);
        for (const [name, hash, there] of views) {
          await page.open(demo.url);
          await go(hash, `!!document.querySelector(${JSON.stringify(there)})`, `${name} has something to show`);
          if (name === "keys") await page.click(".lane-names button");
          if (name === "objects") {
            await page.click(".row");
            await page.until(`document.querySelectorAll(".tree li").length > 1`, "the tree is there");
          }
          await pause(1200);
          writeFileSync(join(options.shots, `${name}-${how}.png`), await page.shot());
          const wide = await page.see("document.documentElement.scrollWidth - document.documentElement.clientWidth");
          assert(wide <= 0, `${name} is ${wide} pixels too wide`);
          // In a world of its own: the policy of the page lets nothing else in.
          const { frameTree } = await page.send("Page.getFrameTree");
          const { executionContextId } = await page.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
          const run = (expression) => page.send("Runtime.evaluate", { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
          await run(`${axe}; 0`);
          const { result } = await run(`axe.run(document, {resultTypes: ["violations"]}).then((it) => JSON.stringify(it.violations.map((v) => v.id + ": " + v.help + " at " + v.nodes.map((n) => n.target.join(" ")).slice(0, 3).join(", "))))`);
          const found = JSON.parse(result.value ?? "[\"axe did not run\"]");
          assert(found.length === 0, `${name}: ${found.join("; ")}`);
        }
        quiet(page);
      });
    }
  }
  await page.size(1280, 900, false);

  if (options.pictures) {
    if (options.only) {
      await page.until(`document.querySelector(".status").innerText === "live"`, "the page is live");
      for (const [act, value] of [["scale", 3], ["loop", null], ["clash", null]]) await play(act, value);
      await pause(12_000);
      await play("delete-pod");
      await pause(4000);
    }
    for (const [name, hash, there] of [["loop", "#/loop", "#stage-queue"], ["keys", "#/keys?sort=busiest", ".lane-names button"], ["findings", "#/findings", ".finding"]]) {
      await page.size(1080, name === "loop" ? 520 : 760, false);
      await page.open(demo.url);
      await go(hash, `!!document.querySelector(${JSON.stringify(there)})`, `${name} has something to show`);
      if (name === "keys") await page.click(".lane-names button:nth-child(2)");
      await pause(4000);
      writeFileSync(join(options.pictures, `dashboard-${name}.webp`), await page.shot({ format: "webp", quality: 55 }));
    }
    await page.size(1280, 900, false);
  }

  await check("a reload and a restart of the server are survived", async () => {
    await page.open(demo.url);
    await page.until(`/[1-9]\\d* watches/.test(${text("#stage-reflector")})`, "numbers are there");
    await page.send("Page.reload");
    await page.until(`/[1-9]\\d* watches/.test(${text("#stage-reflector")})`, "and after a reload");
    page.mayBeAway = true;
    await stop(demo.process);
    await page.until(`document.querySelector(".status").innerText === "connecting again" && !document.getElementById("notice").hidden`, "the page says that the server is away");
    demo = await start(options.setpoint, ["demo", "--web", `127.0.0.1:${port}`]);
    await page.until(`document.querySelector(".status").innerText === "live" && document.getElementById("notice").hidden`, "and goes on by itself", 30_000);
    await page.until(`/[1-9]\\d* watches/.test(${text("#stage-reflector")})`, "with the numbers of the new one");
    await pause(300);
    page.mayBeAway = false;
    quiet(page);
  });
  await stop(demo.process);

  await check("100,000 objects are scrolled, at 5,000 facts a second, and no name becomes markup", async () => {
    const crowd = await start(options.crowd, [`127.0.0.1:${port}`]);
    const other = await browser.page();
    await other.size(1280, 900, false);
    await other.open(crowd.url);
    await other.until(`/100k|100\\.0k|10\\d\\.\\dk|10\\dk/.test(${text("#stage-indexer")})`, "the objects are counted", 60_000);
    await pause(6000);
    console.log(`note the page is told ${await other.see(`/[\\d.k]+\\/s facts/.exec(document.querySelector("p.quiet").innerText)?.[0]`)}`);
    await other.click("#stage-indexer");
    await other.until(`document.querySelectorAll(".row").length > 10`, "rows are there");
    const frames = await other.see(`new Promise((resolve) => { const list = document.querySelector(".viewport"); const times = []; let last = performance.now(); let n = 0; const step = (now) => { times.push(now - last); last = now; list.scrollTop = (n * 7919 * 32) % (list.scrollHeight - list.clientHeight); if (++n < 120) requestAnimationFrame(step); else { times.sort((a, b) => a - b); resolve({half: times[60], most: times[114]}); } }; requestAnimationFrame(step); })`);
    console.log(`note a frame while scrolling: half within ${frames.half.toFixed(0)} ms, 95 % within ${frames.most.toFixed(0)} ms`);
    assert(frames.most < 100, `a frame took ${frames.most.toFixed(0)} ms`);
    await other.see(`document.querySelector(".viewport").scrollTop = 1e9`);
    await other.until(`${text(".rows")}.includes("object-099999")`, "the last one is reached");
    await other.see(`(() => { const it = document.querySelector("input[type=search]"); it.value = "object-05432"; it.dispatchEvent(new Event("input")); })()`);
    await other.until(`${text(".rows")}.includes("object-054321")`, "one is found");
    await other.see(`location.hash = "#/keys"`);
    await other.until(`document.querySelectorAll(".lane-names button").length > 5`, "keys are there");
    await other.until(`${text(".lane-names")}.includes("<img src=x onerror=")`, "a name is shown as it is");
    await other.click(".lane-names button");
    await other.see(`location.hash = "#/findings"`);
    await other.until(`${text(".findings")}.includes("<script>window.hacked=1</script>")`, "an error is shown as it is", 30_000);
    await other.see(`location.hash = "#/objects?resource=configmaps&key=default%2Fobject-000007&tab=whole"`);
    await other.until(`${text("pre")}.includes("<script>window.hacked=1</script>")`, "a value is shown as it is");
    assert((await other.see("window.hacked")) === undefined && (await other.see("document.querySelectorAll('main img, main script').length")) === 0, "a name has become markup");
    quiet(other);
    await stop(crowd.process);
  });

  await check("a stranger is refused where others can reach it", async () => {
    const up = await start(options.setpoint, ["up", "--memory", "--listen", "127.0.0.1:0", "--kubeconfig", join(options.shots, "kubeconfig"), "--dashboard", `0.0.0.0:${port}`], /dashboard\s+(\S+)/);
    const stranger = await browser.page();
    stranger.mayBeAway = true;
    await stranger.open(`https://127.0.0.1:${port}/`);
    await stranger.until(`${text("h1")} === "Who are you?"`, "a token is asked for");
    const codes = await stranger.see(`Promise.all(["/api/state", "/api/stream", "/app.js", "/api/objects?resource=secrets"].map((path) => fetch(path).then((it) => it.status)))`);
    assert(codes.every((code) => code === 401), `a stranger is told ${codes}`);
    await stranger.see(`(() => { document.getElementById("token").value = "guess"; document.querySelector("form").submit(); })()`);
    await pause(500);
    await stranger.until(`${text("h1")} === "Who are you?"`, "a guess does not help");
    await stop(up.process);
  });
} catch (error) {
  failures += 1;
  console.log(`FAIL the suite (0 ms): ${String(error.stack).replaceAll("\n", " ")}`);
} finally {
  browser.close();
  for (const process of started) process.kill("SIGKILL");
}
process.exitCode = failures ? 1 : 0;
