"""The page of models: slices as bars of what sits in them, and a row a model that opens what is known of it.

Its script asks `/models` as whoever looks at it, and again every few seconds; what has changed meanwhile, it remembers.
Thousands of models make few rows: those that take memory first, as many as are asked for, or that match a word.
"""

from typing import Final

LOOK: Final = """
:root { color-scheme: light dark; --line: #8886; --bad: #c0392b; --good: #1d7a45; --quiet: #6b6b6b; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a7a; --good: #6fd08c; --quiet: #a5a5a5; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 80rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; margin: 1rem 0 .3rem; font-weight: 600; }
.bad { color: var(--bad); } h2 small, .quiet { color: var(--quiet); font-weight: 400; }
form { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: end; margin: .8rem 0; }
input, button { font: inherit; color: inherit; }
.bar { display: flex; height: 2.6rem; border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
.bar > * { min-width: 3px; box-sizing: border-box; border: 0; border-right: 1px solid #0004; padding: 0 .3rem;
  overflow: hidden; white-space: nowrap; text-overflow: ellipsis; text-align: left; color: #111; font-size: .8rem; }
.bar span { line-height: 2.6rem; }
.bar .free { flex: 1 1 0; background: none; color: inherit; border: 0; }
span.resident, .bar .resident { background: #a9d8b5; } span.held, .bar .held { background: #6cbf86; }
span.draining, .bar .draining { background: #d7c96a; } span.loading, .bar .loading { background: #8fc0ea; }
span.freeing, .bar .unloading, .bar .freeing { background: #e6b47b; } span.leaked, .bar .leaked { background: #e08c86; }
.bar .others { background: #c9c9c9; }
.legend span { display: inline-block; width: .9rem; height: .9rem; margin: 0 .3rem 0 .8rem; vertical-align: -.1rem; }
button.name { border: 0; background: none; padding: 0; text-align: left; cursor: pointer; max-width: 12rem;
  overflow-wrap: break-word; }  /* a name is broken only where it is longer than that */
button.name::before { content: "\\25b8\\a0"; } button.name[aria-expanded=true]::before { content: "\\25be\\a0"; }
:focus-visible { outline: 3px solid #3b82f6; outline-offset: -2px; }
table { border-collapse: collapse; width: 100%; margin-top: .8rem; }
th, td { text-align: left; padding: .25rem .4rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td:nth-child(3), td:nth-child(5), td:nth-child(7) { white-space: nowrap; }
td:last-child { overflow-wrap: anywhere; white-space: normal; min-width: 12rem; }
tr.more td { border-bottom: 1px solid var(--line); padding-left: 1.6rem; }
.resident td:nth-child(3) { color: var(--good); }
.troubled td:nth-child(8), .failed td:nth-child(3), .quarantined td:nth-child(3), .unreachable td:nth-child(3),
.unseen td:nth-child(3) { color: var(--bad); }
.old { opacity: .45; }
@media (min-width: 76rem) { td:nth-child(2), td:nth-child(4), td:nth-child(6) { white-space: nowrap; } }
@media (max-width: 64rem) {
  thead { display: none; } tr, td { display: block; border: 0; padding: .05rem 0; }
  tbody tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  tr.more td { border: 0; } td:empty { display: none; }
  td[data-of]::before { content: attr(data-of) ": "; color: var(--quiet); }
}
"""
SCRIPT: Final = """
"use strict";
const ROWS = 100, CHANGES = 20, EVERY = 5000, LONGEST = 30000, ANSWER = 10000;  // of times, milliseconds
const MEMORY = ["resident", "draining", "loading", "unloading", "freeing"];
const ORDER = ["quarantined", "failed", "unreachable", "unseen", ...MEMORY, "queued", "cold", "unknown"];
const UNTOLD = ["unseen", "unreachable"], WAS = "was ";
const COLUMNS = ["", "Server", "State", "Since", "Size", "Held by", "Last use", "Why"];
const find = (id) => document.getElementById(id);
const open = new Set(), past = new Map();
let told = { models: [], slices: [] }, most = ROWS, looks = 0, asOf = 0;

const bytes = (size) => {
  let at = 0;
  for (; size >= 1024 && at < 4; at++) size /= 1024;
  return `${at ? size.toFixed(1) : size} ${["B", "KiB", "MiB", "GiB", "TiB"][at]}`;
};
const ago = (seconds) => seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min`
  : `${Math.round(seconds / 3600)} h`;
const clock = (at) => time(new Date(at).toISOString());
const UNKNOWN = "This token or key is not known here.";
const GIVE = "Give a token, or an API key, to see the models that you may inspect.";
const time = (text) => (text ?? "").slice(0, 19).replace("T", " ") + (text ? " UTC" : "");
const of = (model) => `${model.server}/${model.model}`;
const inFlight = (at) => (at.leases ?? []).reduce((sum, each) => sum + each.inFlight, 0);

function make(kind, text, to) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (to) to.append(made);
  return made;
}

function part(at) {
  const made = make("section", undefined, find("slices"));
  make("small", at.pod ? `${at.pod} (${at.replica})` : at.replica, make("h2", `${at.server}/${at.pool} `, made));
  return made;
}

const isUntold = (state) => UNTOLD.includes(state) || state.startsWith(WAS);

/* Where it is written what to do about a replica that has a model not in use. */
function runbook(model, at) {
  const state = (at) => at.said ?? at.state, pool = model.places.filter((each) => each.pool === at.pool);
  let alert = model.loading !== "on-demand" ? ""
    : { unseen: "TidegatePolicySilent", queued: "TidegateCallsBusy" }[state(at)];
  if (state(at) === "unreachable")
    alert = pool.every((each) => state(each) === "unreachable") ? "TidegatePoolGone" : "TidegateBreakerOpen";
  return alert ? `docs/runbooks.md, ${alert}` : "";
}

/* Pools that have all of their models in memory: they have no slices. */
function preloaded() {
  const pools = new Map();
  for (const model of told.models) {
    if (model.loading !== "preload") continue;
    const near = new Map();  // the versions of a model may be in several pools
    for (const at of (model.places ?? []).length ? model.places : [model]) {
      const pool = at.pool ?? model.pool;
      if (at.state === "resident" || !near.has(pool)) near.set(pool, at.state);
    }
    for (const [pool, state] of near) {
      const at = `${model.server}/${pool} `, states = pools.get(at) ?? new Map();
      pools.set(at, states.set(state, (states.get(state) ?? 0) + 1));
    }
  }
  for (const [at, states] of pools) {
    const counts = [...states].map(([state, number]) => `${number} ${state}`).join(", ");
    make("small", `preload: ${counts}`, make("h2", at, make("section", undefined, find("slices"))));
  }
}

/* Replicas of on-demand pools that do not say what sits in them: nobody may take them for empty. */
function untold() {
  const found = new Map();
  for (const model of told.models) for (const at of model.loading === "on-demand" ? model.places ?? [] : []) {
    if (!isUntold(at.state)) continue;
    const why = [at.why || "it does not say what sits in it", runbook(model, at)].filter(Boolean).join("; ");
    found.set(`${model.server}/${model.pool} ${at.replica}`, { ...model, replica: at.replica, why });
  }
  return found.values();
}

function slice(room) {
  const here = part(room);
  const kinds = ["resident", "loading", "freeing", "leaked", "free"].filter((kind) => room[kind + "Bytes"]);
  const sums = kinds.map((kind) => `${kind} ${bytes(room[kind + "Bytes"])}`).join(", ");
  const bar = make("div", undefined, here);
  bar.className = "bar";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", `${sums} of ${bytes(room.capacityBytes)}`);
  let others = room.residentBytes + room.loadingBytes + room.freeingBytes;
  const block = (kind, size, text, title, does) => {
    const made = make(does ? "button" : "span", text, bar);
    made.className = kind;
    made.title = title;
    made.style.flex = `0 1 ${100 * size / room.capacityBytes}%`;
    if (!does) return;
    made.id = `block ${room.replica} ${text}`;
    made.addEventListener("click", does);
  };
  for (const model of told.models) {
    if (model.server !== room.server || model.pool !== room.pool) continue;
    const at = model.places.find((each) => each.replica === room.replica && MEMORY.includes(each.state));
    if (!at?.footprintBytes) continue;
    others -= at.footprintBytes;
    const held = at.state === "resident" && (at.leases ?? []).length ? "held" : at.state;
    const title = `${model.model}: ${at.state}, ${bytes(at.footprintBytes)}, held by ${(at.leases ?? []).length}`;
    block(held, at.footprintBytes, model.model, title, () => {
      open.add(of(model));
      find("word").value = "";
      most = Math.max(most, sorted().indexOf(model) + 1);
      show("model " + of(model), true);
    });
  }
  const rest = "models that are not for you to see, and what is kept for first loads";
  if (others > 0) block("others", others, "others", `${rest}: ${bytes(others)}`);
  if (room.leakedBytes) block("leaked", room.leakedBytes, "leaked", `did not come back: ${bytes(room.leakedBytes)}`);
  if (room.freeBytes) make("span", `${bytes(room.freeBytes)} free`, bar).className = "free";
  make("div", `${sums} of ${bytes(room.capacityBytes)}; policy ${room.policy}`, here).className = "quiet";
}

function cells(row, texts, first = 0) {
  texts.forEach((text, at) => {
    const made = make("td", text, row);
    if (COLUMNS[first + at]) made.dataset.of = COLUMNS[first + at];
  });
}

function words(model, at) {
  const leases = at.leases ?? [];
  const failures = (at.failures ?? []).map((each) => (each.version ? `version ${each.version}: ` : "") + each.why);
  const held = leases.length ? `${leases.length} (${inFlight(at)} in flight)` : "";
  const why = [...(failures.length ? failures : [at.why ?? ""]), at.waiters ? `${at.waiters} waiting` : "",
    at.busy ? `told busy in five minutes: ${at.busy}` : ""];
  const size = at.footprintBytes ? bytes(at.footprintBytes) : "";
  const use = at.idleSeconds === null || at.idleSeconds === undefined ? "" : `${ago(at.idleSeconds)} ago`;
  return [at.state, time(at.since), size, held, use, why.filter(Boolean).join("; ")];
}

const isTroubled = (model) => (model.places ?? []).some((at) => at.busy || (at.failures ?? []).length);
const sum = (places, of) => places.reduce((all, at) => all + (at[of] ?? 0), 0);

/* What is known of a model at all its replicas together. */
function whole(model) {
  const places = model.places ?? [], nearest = places.find((at) => at.state === model.state);
  const idle = places.map((at) => at.idleSeconds).filter((each) => each !== null && each !== undefined);
  return { ...model, leases: places.flatMap((at) => at.leases ?? []), footprintBytes: nearest?.footprintBytes,
    failures: places.flatMap((at) => at.failures ?? []), idleSeconds: idle.length ? Math.min(...idle) : null,
    waiters: sum(places, "waiters"), busy: sum(places, "busy") };
}

function row(model) {
  const made = make("tr", undefined, find("models"));
  made.className = `model ${model.state}${isTroubled(model) ? " troubled" : ""}`;
  const name = make("button", model.model, make("td", undefined, made));
  name.className = "name";
  name.id = "model " + of(model);
  name.setAttribute("aria-expanded", open.has(of(model)));
  name.addEventListener("click", () => {
    if (!open.delete(of(model))) open.add(of(model));
    show(name.id);
  });
  cells(made, [`${model.server}/${model.pool}`, ...words(model, whole(model))], 1);
  if (!open.has(of(model))) return;
  for (const at of model.places ?? []) {
    const more = make("tr", undefined, find("models"));
    more.className = "more " + at.state;
    const versions = (at.versions ?? []).length ? `versions ${at.versions.join(", ")}` : "";
    const goes = at.evictableIn === null || at.evictableIn === undefined || inFlight(at) ? ""
      : at.evictableIn > 0 ? `may go in ${ago(at.evictableIn)}` : "may go now";
    const failed = (at.failures ?? []).map((each) => `failed ${time(each.since)}`);
    const holders = (at.leases ?? []).map((each) => `held by ${each.holder}, ${each.inFlight} in flight`);
    const [state, since, size, held, use, why] = words(model, at);
    cells(more, [at.replica, at.pool ? `${model.server}/${at.pool}` : "", state, since, size, held, use,
      [why, runbook(model, at), versions, goes, ...failed, ...holders].filter(Boolean).join("; ")]);
  }
  const seen = make("td", undefined, make("tr", undefined, find("models")));
  seen.parentNode.className = "more";
  seen.colSpan = COLUMNS.length;
  const changes = past.get(of(model)) ?? [];
  seen.textContent = changes.length ? `Seen since this page was opened: ${changes.join("; ")}`
    : "No change was seen since this page was opened.";
}

function sorted() {
  const word = find("word").value.trim().toLowerCase();
  const match = told.models.filter((model) => of(model).toLowerCase().includes(word));
  const rank = (model) => isTroubled(model) ? -1 : ORDER.indexOf(model.state);
  return match.sort((one, other) => rank(one) - rank(other));
}

function show(focus, goes = false) {
  const before = focus ?? document.activeElement?.id, match = sorted();
  find("slices").replaceChildren();
  for (const room of told.slices ?? []) slice(room);
  for (const at of untold()) {
    const why = make("div", at.why, part(at));
    why.className = "bad";
  }
  preloaded();
  find("legend").hidden = !(told.slices ?? []).length;
  find("models").replaceChildren();
  for (const model of match.slice(0, most)) row(model);
  if (!match.length && find("word").value.trim()) {
    const none = make("td", "No name of a model, or of its server, has this word in it.",
      make("tr", undefined, find("models")));
    none.colSpan = COLUMNS.length;
  }
  const rest = match.length - most;
  find("rest").hidden = rest <= 0;
  find("rest").textContent = `Show ${Math.min(rest, ROWS)} more of ${rest}`;
  if (before) find(before)?.focus({ preventScroll: !goes });  // the reader stays where he is
}

function remember(models) {
  const now = new Date().toISOString(), states = new Map();
  const name = (model, at) => of(model) + " " + at.replica;
  for (const model of told.models) for (const at of model.places ?? []) states.set(name(model, at), at.state);
  for (const model of models) for (const at of model.places ?? []) {
    const was = states.get(name(model, at));
    if (model.loading === "on-demand" && UNTOLD.includes(at.state)) {
      const is = model.state === at.state;
      at.said = at.state;
      if (was !== undefined && !UNTOLD.includes(was)) at.state = WAS + was.replace(WAS, "");
      if (is) model.state = at.state, model.why = "";  // it is said once, above
    }
    if (was === undefined || was === at.state) continue;
    const change = `${time(now)} ${at.replica} ${was} → ${at.said ?? at.state}`;
    past.set(of(model), [...(past.get(of(model)) ?? []), change].slice(-CHANGES));
  }
}

async function look() {
  const headers = { accept: "application/json" }, mine = ++looks;
  const key = find("key").value.trim();
  if (key) headers.authorization = "Bearer " + key;
  try {
    const signal = AbortSignal.timeout(ANSWER);
    const answer = await fetch(location.pathname, { headers, cache: "no-store", signal });
    const said = await answer.json().catch(() => ({}));
    if (mine !== looks) return;  // somebody has asked again meanwhile, with another key it may be
    if (answer.status === 401 || answer.status === 403) told = { models: [], slices: [] };
    if (answer.status === 401) throw new Error(key ? `${UNKNOWN} ${said.detail ?? ""}` : GIVE);
    if (!answer.ok || !said.models) throw new Error(said.detail ?? `It answers ${answer.status}.`);
    asOf = Date.now();
    const number = said.models.length;
    const text = `${number} models that you may inspect in ${said.environment}, as of ${clock(asOf)}`;
    find("said").textContent = text;
    find("said").className = "";
    remember(said.models);
    told = said;
  } catch (error) {
    if (mine !== looks) return;
    const isLate = error.name === "TimeoutError";
    const why = isLate ? `The proxy has given no answer in ${ANSWER / 1000} s.` : error.message;
    const age = ` What is below was so at ${clock(asOf)}, ${ago((Date.now() - asOf) / 1000)} ago.`;
    find("said").textContent = why + (told.models.length ? age : "");
    find("said").className = why === GIVE ? "quiet" : "bad";
  }
  for (const part of ["slices", "models"]) find(part).className = find("said").className && "old";
  show();
}

/* A tenth of the proxy's time at most is for this page; one that gives no answer spends none. */
const pause = (took) => find("said").className ? EVERY : Math.min(LONGEST, Math.max(EVERY, 10 * took));

async function again() {
  const began = Date.now();
  try {
    if (!document.hidden && told.environment) await look();
  } finally {
    setTimeout(again, pause(Date.now() - began));
  }
}

find("who").addEventListener("submit", (event) => { event.preventDefault(); look(); });
find("word").addEventListener("input", () => { most = ROWS; show(); });
find("rest").addEventListener("click", () => { most += ROWS; show(); });
look();
setTimeout(again, EVERY);
"""
PAGE: Final = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Models</title>
<link rel="icon" href="data:,">
<style>{LOOK}</style>
</head>
<body>
<h1>Models</h1>
<form id="who">
<label>Token or API key <input id="key" type="password" autocomplete="off"></label> <button>Look</button>
<label>Find <input id="word" type="search" autocomplete="off"></label>
</form>
<p id="said" role="status"></p>
<div id="slices"></div>
<p id="legend" class="quiet legend" hidden>In memory:<span class="held"></span>held by a proxy
<span class="resident"></span>free to go once it is idle <span class="loading"></span>being loaded
<span class="draining"></span>goes with its last call <span class="freeing"></span>being unloaded
<span class="leaked"></span>did not come back</p>
<table>
<thead><tr><th>Model<th>Server<th>State<th>Since<th>Size<th>Held by<th>Last use<th>Why</tr></thead>
<tbody id="models"></tbody>
</table>
<p><button id="rest" hidden></button></p>
<script>{SCRIPT}</script>
</body>
</html>
"""
