// Fields of objects: who wrote them, and what is different.

/** What every write changes. */
const LEFT_OUT = ["metadata.resourceVersion", "metadata.managedFields", "metadata.generation"];
const MOST = 200;

/**
 * The fields that each manager owns, as paths.
 * @param {any} object @returns {{manager: string, operation: string, subresource: string, at: number, paths: string[]}[]}
 */
export function owners(object) {
  const entries = object?.metadata?.managedFields ?? [];
  return entries.map((/** @type {any} */ entry) => ({
    manager: entry.manager ?? "", operation: entry.operation ?? "", subresource: entry.subresource ?? "",
    at: entry.time ? Date.parse(entry.time) : NaN, paths: paths(entry.fieldsV1 ?? {}, ""),
  }));
}

/** `{"f:spec": {"f:replicas": {}}}` is `spec.replicas`. @param {any} fields @param {string} path @returns {string[]} */
function paths(fields, path) {
  const found = [];
  for (const [name, inner] of Object.entries(fields)) {
    if (name === ".") {
      if (path) found.push(path);
      continue;
    }
    const sign = name.slice(0, 2);
    const rest = name.slice(2);
    const here = sign === "f:" ? (path ? `${path}.${rest}` : rest) : `${path}[${sign === "k:" ? named(rest) : rest}]`;
    const below = Object.keys(/** @type {any} */ (inner)).length ? paths(inner, here) : [here];
    found.push(...below);
  }
  return found;
}

/** `{"name":"web"}` is `name=web`. @param {string} key */
function named(key) {
  try {
    return Object.entries(JSON.parse(key)).map(([name, value]) => `${name}=${value}`).join(",");
  } catch {
    return key;
  }
}

/**
 * What is different, as paths with what was there before and what is there now.
 * @param {any} before @param {any} after @returns {{path: string, before: string | null, after: string | null}[]}
 */
export function differences(before, after) {
  /** @type {{path: string, before: string | null, after: string | null}[]} */
  const found = [];
  compare("", before, after, found);
  return found;
}

/** @param {string} path @param {any} before @param {any} after @param {any[]} found */
function compare(path, before, after, found) {
  if (found.length >= MOST || LEFT_OUT.includes(path) || before === after) return;
  const both = [before, after];
  if (both.every(Array.isArray)) {
    for (let n = 0; n < Math.max(before.length, after.length); n++) compare(`${path}[${n}]`, before[n], after[n], found);
  } else if (both.every((it) => it !== null && typeof it === "object" && !Array.isArray(it))) {
    for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) compare(path ? `${path}.${name}` : name, before[name], after[name], found);
  } else found.push({ path, before: shown(before), after: shown(after) });
}

/** @param {any} value @returns {string | null} */
function shown(value) {
  if (value === undefined) return null;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}
