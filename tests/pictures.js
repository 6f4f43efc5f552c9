/* Draws the pictures of docs/pictures as SVG. `CSS` is pictures.css. Widths of words are estimates. */
const TONES = { resident: "good", held: "good", loading: "busy", draining: "warn", freeing: "warn", leaked: "bad",
  quarantined: "bad", failed: "bad", unreachable: "bad", queued: "warn", unseen: "warn" };
const SHARED = ["cluster", "namespace", "pod"];  // labels that all series of the demo share
const WIDTH = 960, LEFT = 24, INSIDE = WIDTH - 2 * LEFT;
const escaped = (words) => words.replace(/[&<>]/g, (each) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[each]);
const plain = (html) => html.replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(code)).replace(/&amp;/g, "&");
const tone = (state) => TONES[state] ?? "quiet";

function text(x, y, words, kind = "", anchor = "start") {
  return `<text x="${Math.round(x)}" y="${Math.round(y)}" text-anchor="${anchor}" class="${kind}">${escaped(words)}</text>`;
}

/* A line of words of two kinds. */
function pair(x, y, first, firstKind, second, secondKind) {
  const part = (words, kind, more = "") => `<tspan class="${kind}"${more}>${escaped(words)}</tspan>`;
  return `<text x="${x}" y="${y}">${part(first, firstKind)}${part(second, secondKind, ' dx="12"')}</text>`;
}

function box(x, y, width, height, kind, round = 0) {
  const size = `width="${width.toFixed(1)}" height="${Math.round(height)}" rx="${round}"`;
  return `<rect x="${x.toFixed(1)}" y="${Math.round(y)}" ${size} class="${kind}"/>`;
}

function svg(title, height, parts) {
  const size = `viewBox="0 0 ${WIDTH} ${Math.round(height)}" width="${WIDTH}" height="${Math.round(height)}"`;
  const begin = `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img"><title>${title}</title>`;
  return [begin, `<style>\n${CSS}</style>`, box(0, 0, WIDTH, height, "page", 8), ...parts, "</svg>\n"].join("\n");
}

function wrapped(words, most) {
  const lines = [""];
  for (const word of words.split(" ")) {
    const line = `${lines.at(-1)} ${word}`.trim();
    if (line.length > most && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = line;
  }
  return lines;
}

/* The overview page: what `shownAll` returns, with the texts of its legend and columns. */
function overview({ message, problems, slices, legend, columns, rows }, most = 10) {
  const parts = [text(LEFT, 44, "Models", "head big strong"), text(LEFT, 68, message, "quiet")];
  let y = 84;
  for (const [kind, what, ...names] of problems) {
    const lines = names.length ? wrapped(names.pop(), 145) : [], height = 44 + 18 * lines.length;
    parts.push(box(LEFT, y, INSIDE, height, `${kind} loud`), box(LEFT, y, 4, height, kind),
      pair(44, y + 28, what, `${kind} big strong`, names.join(", "), "big"),
      ...lines.map((line, at) => text(44, y + 50 + 18 * at, line, "small")));
    y += height + 8;
  }
  for (const { head, sums, blocks } of slices) {
    const [name, ...rest] = head.split(" ");
    parts.push(pair(LEFT, y + 24, name, "strong", rest.join(" "), "quiet"));
    let x = LEFT;
    for (const [kind, words, share] of blocks) {
      const wide = INSIDE * share / 100;
      if (kind !== "free") parts.push(box(x, y + 32, wide - 1, 32, `${tone(kind)} fill ${kind}`, 2));
      if (kind === "free" || 7 * words.length < wide) parts.push(text(x + 8, y + 53, words, "small"));
      x += wide;
    }
    if (blocks.length) parts.push(box(LEFT, y + 32, INSIDE, 32, "frame", 4), text(LEFT, y + 82, sums, "quiet"));
    y += blocks.length ? 92 : 32;
  }
  parts.push(text(LEFT, y + 24, "In memory:", "head quiet small"));
  let x = LEFT + 76;
  for (const [kind, words] of legend) {
    if (x + 30 + 6.4 * words.length > WIDTH - LEFT) [x, y] = [LEFT + 76, y + 22];
    parts.push(box(x, y + 14, 12, 12, `${tone(kind)} fill ${kind}`, 2), text(x + 18, y + 24, words, "head quiet small"));
    x += 40 + 6.4 * words.length;
  }
  const places = [36, 116, 240, 360, 500, 516, 622, 700];
  y += 60;
  columns.forEach((head, at) => parts.push(text(places[at], y, head, "head quiet small", at === 4 ? "end" : "start")));
  for (const [kind, ...cells] of rows.slice(0, most)) {
    const lines = wrapped(cells.pop(), 36), height = 12 + 18 * lines.length;
    parts.push(box(LEFT, y + 10, INSIDE, 1, "rule"));
    if (kind) parts.push(box(LEFT, y + 11, 3, height, kind));
    cells[2] = `● ${cells[2]}`;
    const kinds = ["strong", "", tone(cells[2].slice(2))];
    parts.push(...cells.map((cell, at) => text(places[at], y + 30, cell, kinds[at], at === 4 ? "end" : "start")),
      ...lines.map((line, at) => text(places[7], y + 30 + 18 * at, line, `small ${kind}`)));
    y += height;
  }
  if (rows.length > most) parts.push(text(36, y + 34, `and ${rows.length - most} more`, "quiet"));
  return svg("The overview page: the worst problem, slices as bars of their models, and a row for each model", y + 56, parts);
}

/* The series of a panel of Grafana: of each its name, and its runs without a gap, of [second, bottom, top]. `results` are
 * Prometheus'. */
function seriesOf(panel, results) {
  const named = (metric, form) => form.replace(/{{(\w+)}}/g, (_, label) => SHARED.includes(label) ? "" : metric[label] ?? "");
  const isStacked = panel.fieldConfig.defaults.custom?.stacking?.mode === "normal", tops = new Map();
  const runsOf = (values) => {
    const runs = [];
    for (const [moment, written] of values.filter(([, value]) => !isNaN(value))) {
      const bottom = isStacked ? tops.get(moment) ?? 0 : 0, point = [moment, bottom, bottom + parseFloat(written)];
      tops.set(moment, point[2]);
      if (moment - (runs.at(-1)?.at(-1)[0] ?? -9) < 1.5) runs.at(-1).push(point);
      else runs.push([point]);
    }
    return runs;
  };
  const all = results.flatMap((result, at) => result.map(({ metric, values }) => [
    named(metric, panel.targets[at].legendFormat).trim() || metric.pod, runsOf(values), isStacked]));
  return all.filter(([, runs]) => runs.length);
}

/* Panels of a dashboard in two columns, each with its results. */
function dashboard(title, panels) {
  const parts = [text(LEFT, 44, title, "head big strong")];
  const written = { bytes: (value) => `${Math.round(value / 2 ** 20)} MiB`, s: (value) => `${value.toFixed(1)} s` };
  const moments = panels.flatMap(([, results]) => results.flat().flatMap(({ values }) => values.map(([moment]) => moment)));
  const begin = Math.min(...moments), end = Math.max(...moments);
  panels.forEach(([panel, results], number) => {
    const { title: name, fieldConfig: { defaults: { unit } } } = panel, series = seriesOf(panel, results);
    const x = LEFT + 464 * (number % 2), y = 64 + 284 * Math.floor(number / 2);
    const most = Math.max(...series.flatMap(([, runs]) => runs.flat().map(([, , top]) => top))) || 1;
    parts.push(box(x, y, 448, 268, "card", 4), text(x + 16, y + 26, name, "head strong"));
    for (const part of [0, 1, 2, 3]) {
      const value = (written[unit] ?? ((each) => String(+each.toFixed(1))))(most * part / 3);
      parts.push(box(x + 74, y + 194 - 48 * part, 358, 1, "rule"),
        text(x + 66, y + 198 - 48 * part, value, "small quiet", "end"),
        text(x + 74 + 119 * part, y + 212, `${Math.round((end - begin) * part / 3)} s`, "small quiet", "middle"));
    }
    let left = x + 16, row = y + 234;
    const point = (at, value) =>
      `${(x + 74 + 358 * (at - begin) / (end - begin)).toFixed(1)},${(y + 194 - 144 * value / most).toFixed(1)}`;
    series.slice(0, 8).forEach(([label, runs, isStacked], colour) => {
      for (const run of runs) {
        const tops = run.map(([at, , top]) => point(at, top)).join(" ");
        const bottoms = run.map(([at, bottom]) => point(at, bottom)).reverse().join(" ");
        if (isStacked) parts.push(`<polygon points="${tops} ${bottoms}" class="area s${colour}"/>`);
        parts.push(`<polyline points="${tops}" class="line s${colour}"/>`);
      }
      const wide = 40 + 6.4 * label.length;
      if (left + wide > x + 448) [left, row] = [x + 16, row + 18];
      parts.push(box(left, row - 6, 12, 4, `s${colour}`), text(left + 18, row, label, "small"));
      left += wide;
    });
  });
  return svg(title, 76 + 284 * Math.ceil(panels.length / 2), parts);
}

/* The Markdown of a preview as a comment, up to its folded part. */
function comment(markdown) {
  const parts = [text(32, 38, "A comment in a pull request, from the job “comment”", "head quiet")];
  let y = 84;
  for (const line of markdown.split("<details>")[0].split("\n").filter(Boolean)) {
    const isHead = line.startsWith("#"), isItem = line.startsWith("- "), left = isItem ? 64 : 40;
    if (isHead) y += 12;
    if (isItem) parts.push(text(48, y, "•"));
    if (isHead) parts.push(box(40, y + 10, 880, 1, "rule"));
    let x = left, row = "";
    const kinds = new Set(isHead ? ["head", "strong"] : []);
    const flush = () => parts.push(`<text x="${left}" y="${y}">${row}</text>`);
    for (const piece of line.replace(/^[#-]+ /, "").match(/\*\*|<\/?code>|[^\s*<]+\s*|\s+/g)) {
      const kind = piece === "**" ? "strong" : piece.startsWith("<") ? "code" : "";
      if (kind) kinds.delete(kind) || kinds.add(kind);
      if (kind) continue;
      const words = plain(piece), wide = words.length * (kinds.size ? 8 : 7);
      if (x + wide > 920) flush(), [x, y, row] = [left, y + 22, ""];
      row += `<tspan class="${[...kinds].join(" ")}">${escaped(words)}</tspan>`;
      x += wide;
    }
    flush();
    y += isHead ? 34 : 26;
  }
  parts.push(text(40, y, "▸ Every field", "head"));
  return svg("A preview in a pull request", y + 36, [box(16, 54, WIDTH - 32, y - 34, "card", 6), ...parts]);
}
