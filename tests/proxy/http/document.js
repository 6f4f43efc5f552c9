/* The part of a browser's document that the script of the /models page uses. */
const elements = {}, requests = [], document = {}, location = { pathname: "/inference/models" };
let answer;

class Element {
  textContent = ""; value = ""; children = []; listeners = {}; attributes = {}; dataset = {}; style = {};
  append(child) { this.children.push(child); Object.defineProperty(child, "parentNode", { value: this }); }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  replaceChildren() { this.children = []; }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  focus() { document.activeElement = this; }
}
const every = (at) => [at, ...at.children.flatMap(every)];
document.createElement = (kind) => Object.assign(new Element(), { kind });
document.getElementById = (id) => Object.values(elements).flatMap(every).find((each) => each.id === id)
  ?? (id.includes(" ") ? null : elements[id] ??= new Element());
const timers = [];
const rests = [];
const setTimeout = (what, rest) => { timers.push(what); rests.push(rest); };
const AbortSignal = { timeout: (milliseconds) => ({ milliseconds }) };

async function fetch(path, options) {
  requests.push({ path, ...options });
  if (!answer) throw new TypeError("the proxy is not there");
  if (answer.status === 408) throw Object.assign(new Error("signal timed out"), { name: "TimeoutError" });
  return { ok: answer.status < 400, status: answer.status, json: async () => JSON.parse(answer.body) };
}

const text = (at) => at.textContent + at.children.map(text).join("");
const rows = (id) => elements[id].children.map((row) => [row.className, ...row.children.map(text)]);
const shown = () => rows("models");
function blocks() {
  return elements.slices.children.flatMap((part) => part.children[1].children)
    .map((each) => [each.className, each.textContent, each.style.flex]);
}
/* What the picture of the page shows. `page` is its HTML. */
const shownAll = (page) => ({
  legend: [...page.matchAll(/<span class="(\w+)">([^<]+)<.span>/g)].map((found) => found.slice(1)),
  columns: [...page.matchAll(/<th>([^<]+)/g)].map((found) => found[1]),
  message: elements.message.textContent, problems: rows("problems"),
  rows: elements.models.children.map(({ children }) => [children.at(-1).className, ...children.map(text)]),
  slices: elements.slices.children.map(({ children: [head, bar, sums] }) => ({
    head: text(head), sums: sums?.textContent ?? "",
    blocks: (bar?.children ?? []).map((at) => [at.className, at.textContent, parseFloat(at.style.flex?.slice(4) ?? 0)]),
  })),
});
