// Elements, marked text and numbers. Text reaches the page as text nodes only, never as markup.

const MARKS = {
  g: ["mark", "ms-gold"],
  i: ["ins", ""],
  d: ["del", ""],
  s: ["span", "ms-source"],
  u: ["span", "ms-unseen"],
};
const MISSING = "–";
const LONG_TEXT = 1500;

/** An element. `on…` properties are listeners, `class` and the rest attributes; null and false are left out. */
function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const plain = (runs) => runs.map((run) => (typeof run === "string" ? run : run[0])).join("");

/** Where `query` stands in `text`, capitals aside. */
function places(text, query) {
  const found = [];
  const folded = text.toLowerCase();
  if (!query || folded.length !== text.length) return found;
  const wanted = query.toLowerCase();
  for (let at = folded.indexOf(wanted); at >= 0; at = folded.indexOf(wanted, at + wanted.length))
    found.push([at, at + wanted.length]);
  return found;
}

/** Runs of text with their marks, and what is searched for marked on top. */
function rich(runs, query = "") {
  const hits = places(plain(runs), query);
  const nodes = [];
  let start = 0;
  for (const run of runs) {
    const [text, letters] = typeof run === "string" ? [run, ""] : run;
    const end = start + text.length;
    let at = start;
    for (const [from, to] of [...hits.filter(([from, to]) => from < end && to > start), [end, end]]) {
      const [cut, next] = [Math.max(from, start), Math.min(to, end)];
      if (cut > at) nodes.push(marked(text.slice(at - start, cut - start), letters));
      if (next > cut)
        nodes.push(h("span", { class: "ms-hit" }, marked(text.slice(cut - start, next - start), letters)));
      at = next;
    }
    start = end;
  }
  return nodes;
}

function marked(text, letters) {
  let node = document.createTextNode(text);
  for (const letter of letters) {
    const [tag, name] = MARKS[letter];
    node = h(tag, { class: name || null, title: letter === "u" ? "cut: the model was not shown this" : null }, node);
  }
  return node;
}

/** A block of text from outside; a long one scrolls and can be scrolled by keys. */
function prose(runs, query, label) {
  const long = plain(runs).length > LONG_TEXT;
  const scroll = long ? { tabindex: "0", role: "region", "aria-label": label } : {};
  return h("div", { class: long ? "ms-text ms-long" : "ms-text", dir: "auto", ...scroll }, rich(runs, query));
}

const number = (value, digits = 0) =>
  value === null || value === undefined
    ? MISSING
    : value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
const signed = (value) => (value === null ? MISSING : `${value < 0 ? "−" : "+"}${number(Math.abs(value), 3)}`);
const words = (name) =>
  name === "gold_lost" ? "gold answer LOST" : name.replace(/^gold_/, "gold answer ").replaceAll("_", " ");

function button(label, properties, ...children) {
  return h("button", { type: "button", ...properties }, label, ...children);
}

/** Outcome of a row: a sign and words for it. */
function outcome(row) {
  if (row.failed) return { key: "failed", sign: "⚠", text: "failed" };
  if (row.outcome !== null) return { key: "ended", sign: "●", text: `outcome ${number(row.outcome, 2)}` };
  if (row.answer === null) return { key: "none", sign: "∅", text: "no answer" };
  if (row.em === null) return { key: "unscored", sign: "·", text: "not scored" };
  if (row.em > 0 && row.em < 1) return { key: "partly", sign: "◐", text: `${number(100 * row.em)}% right` };
  return row.em === 1 ? { key: "right", sign: "✓", text: "right" } : { key: "wrong", sign: "✗", text: "wrong" };
}

/** Put new children in place and give the focus back to the element that had it, by its `data-key`. */
function replaceChildren(parent, children, fallback) {
  const active = parent.getRootNode().activeElement;
  const held = parent.contains(active) && active !== parent;
  const key = held ? active.getAttribute("data-key") : null;
  parent.replaceChildren(...children);
  if (!held) return;
  const again = key && [...parent.querySelectorAll("[data-key]")].find((each) => each.getAttribute("data-key") === key);
  (again || fallback).focus({ preventScroll: true });
}
