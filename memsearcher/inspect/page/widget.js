// The inspector: state, keys, and the two places it lives in, a notebook (through anywidget) and a page of its own.

const PANELS = { turn: "Turns", tokens: "Tokens", group: "Group", compare: "Compare" };
const KEYS = [
  ["← →", "turn before, after"],
  ["k j", "trajectory before, after"],
  ["/", "search"],
  ["d", "memory as a difference, or as it is"],
  ["r", "what the model saw and wrote, raw"],
  ["t", "tokens"],
  ["g", "group"],
  ["c", "compare"],
  ["Esc", "back to the turns"],
  ["?", "this help"],
];
const KEPT_VIEWS = 30;
let made = 0;

/**
 * Build the inspector in `root`.
 *
 * `source` has `index` (rows, groups, runs), `view(place)` and `search(query, tell)`, which give promises, the latter of
 * a Map from places to hits, of what belongs to no turn and then turn by turn. `start` is state to begin with;
 * `changed(state)` is told of changes.
 */
function mount(root, source, { start = {}, changed = () => {}, keysFrom = root } = {}) {
  const prefix = `ms${made++}`;
  const { rows, runs } = source.index;
  const app = { index: source.index, places: [], severalAgents: new Set(rows.map((row) => row.agent)).size > 1 };
  app.state = {
    trajectory: 0,
    turn: 1,
    panel: "turn",
    diff: true,
    raw: false,
    help: false,
    open: null,
    partner: null,
    beside: null,
    query: "",
    hits: null,
    searching: "",
    filters: { ...NO_FILTERS },
    by: "order",
    falling: false,
  };
  app.optionId = (place) => `${prefix}-${place}`;
  app.hitsOf = (place) => (app.state.hits?.get(place) ?? []).reduce((sum, count) => sum + count, 0);
  app.label = (place) =>
    [runs.length > 1 && runs[rows[place].run], rows[place].agent].filter(Boolean).join(" · ") +
    ` #${rows[place].sample}`;
  app.sameQuestion = (place) =>
    rows.map((_, other) => other).filter((other) => other !== place && rows[other].task === rows[place].task);

  const views = new Map();
  const viewOf = (place) => {
    if (views.has(place)) return views.get(place);
    if (views.size >= KEPT_VIEWS) views.delete(views.keys().next().value);
    const entry = {};
    entry.promise = source.view(place).then((view) => (entry.view = view));
    views.set(place, entry);
    return entry;
  };

  const find = findBox(app);
  app.count = h("p", { class: "ms-count", role: "status" });
  app.list = h("ul", {
    class: "ms-list",
    role: "listbox",
    tabindex: "0",
    "aria-label": "trajectories",
    onclick: (event) => {
      const option = event.target.closest("[data-place]");
      if (option) app.set({ trajectory: Number(option.getAttribute("data-place")) });
    },
  });
  const main = h("main", { class: "ms-main", tabindex: "-1" });
  const frame = h(
    "div",
    { class: "ms-inspector", "data-lm-suppress-shortcuts": "true", tabindex: "-1" },
    h("nav", { class: "ms-rail", "aria-label": "find a trajectory" }, find.box, app.count, app.list),
    main,
  );

  app.set = (patch) => {
    const before = app.state;
    const state = (app.state = { ...before, ...patch });
    if (state.trajectory !== before.trajectory) {
      if (!("turn" in patch)) state.turn = firstHit(app) ?? 1;
      Object.assign(state, {
        beside: null,
        open: null,
        ...(before.panel === "compare" && !("partner" in patch) ? { partner: partnerOf(app) } : {}),
      });
    }
    if (state.panel === "compare" && state.partner === null && !("partner" in patch)) state.partner = partnerOf(app);
    if (state.turn !== before.turn && !("open" in patch)) state.open = null;
    state.turn = Math.min(Math.max(1, state.turn), Math.max(1, rows[state.trajectory].turns));
    if (["hits", "searching", "filters", "by", "falling"].some((name) => state[name] !== before[name])) {
      find.update();
      showList(app);
    } else if (state.trajectory !== before.trajectory) markSelected(app);
    if (Object.keys(state).some((name) => name !== "searching" && state[name] !== before[name])) {
      show();
      changed(state);
    }
  };

  let waiting = 0;
  app.search = (query) => {
    clearTimeout(waiting);
    if (!query.trim()) return app.set({ query: "", hits: null, searching: "" });
    waiting = setTimeout(async () => {
      const mine = waiting;
      app.set({ searching: "searching…" });
      const hits = await source.search(query, (text) => mine === waiting && app.set({ searching: text }));
      if (mine === waiting) app.set({ query, hits, searching: "" });
    }, 150);
  };

  function show() {
    const { trajectory, panel, partner, beside } = app.state;
    const needed = [trajectory, panel === "compare" ? partner : panel === "tokens" ? beside : null]
      .filter((place) => place !== null)
      .map(viewOf);
    if (needed.every((entry) => entry.view)) return draw(...needed.map((entry) => entry.view));
    if (!main.firstChild) main.append(none("loading…"));
    main.setAttribute("aria-busy", "true");
    const state = app.state;
    Promise.all(needed.map((entry) => entry.promise)).then(
      () => state.trajectory === app.state.trajectory && show(),
      (error) =>
        main.replaceChildren(
          h("p", { class: "ms-bad", role: "alert" }, `This trajectory could not be read: ${error.message}`),
        ),
    );
  }

  function draw(view, other) {
    const { panel, help } = app.state;
    main.removeAttribute("aria-busy");
    const scroll = main.scrollTop;
    replaceChildren(
      main,
      [
        header(app, view),
        tabs(app),
        ...(help ? [helpBox(app)] : []),
        h(
          "div",
          { role: "tabpanel", id: `${prefix}-panel`, "aria-label": PANELS[panel] },
          panel === "turn"
            ? [strip(app, view), turnPanel(app, view)]
            : panel === "tokens"
              ? tokensPanel(app, view, other)
              : panel === "group"
                ? groupPanel(app)
                : comparePanel(app, view, other),
        ),
      ],
      main,
    );
    main.scrollTop = scroll;
  }

  function tabs(app) {
    const { panel, diff, raw, help } = app.state;
    const names = Object.keys(PANELS);
    const tab = (name) =>
      button(PANELS[name], {
        role: "tab",
        class: "ms-tab",
        "data-key": `tab-${name}`,
        "aria-selected": String(name === panel),
        "aria-controls": `${prefix}-panel`,
        tabindex: name === panel ? "0" : "-1",
        onclick: () => app.set({ panel: name }),
      });
    const toggle = (label, name, pressed) =>
      button(label, {
        class: "ms-toggle",
        "data-key": name,
        "aria-pressed": String(pressed),
        onclick: () => app.set({ [name]: !pressed }),
      });
    return h(
      "div",
      { class: "ms-tabs" },
      h("div", { role: "tablist", "aria-label": "views" }, names.map(tab)),
      h("div", { class: "ms-row" }, toggle("diff", "diff", diff), toggle("raw", "raw", raw), toggle("?", "help", help)),
    );
  }

  const act = {
    ArrowLeft: () => app.set({ turn: app.state.turn - 1 }),
    ArrowRight: () => app.set({ turn: app.state.turn + 1 }),
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    "/": () => find.search.focus(),
    d: () => app.set({ diff: !app.state.diff }),
    r: () => app.set({ raw: !app.state.raw }),
    t: () => app.set({ panel: app.state.panel === "tokens" ? "turn" : "tokens" }),
    g: () => app.set({ panel: app.state.panel === "group" ? "turn" : "group" }),
    c: () => app.set({ panel: app.state.panel === "compare" ? "turn" : "compare" }),
    "?": () => app.set({ help: !app.state.help }),
    Escape: () => app.set(app.state.help ? { help: false } : { panel: "turn", raw: false }),
  };
  function step(by) {
    const at = app.places.indexOf(app.state.trajectory);
    const next = app.places[at < 0 ? 0 : Math.min(Math.max(0, at + by), app.places.length - 1)];
    if (next !== undefined) app.set({ trajectory: next });
  }
  const onkey = (event) => {
    const target = event.target;
    const arrow = event.key.startsWith("Arrow");
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !Object.hasOwn(act, event.key))
      return;
    if (
      target.matches?.("select, input:not([type=range]), textarea, [contenteditable]") ||
      (arrow && target.matches?.("input, summary"))
    )
      return;
    if (arrow && event.key !== "ArrowLeft" && event.key !== "ArrowRight" && target !== app.list) return; // up and down scroll
    if (arrow && target.getAttribute?.("role") === "tab") return moveTab(event);
    event.preventDefault();
    act[event.key]();
  };
  function moveTab(event) {
    const names = Object.keys(PANELS);
    const next = names.at((names.indexOf(app.state.panel) + (event.key === "ArrowRight" ? 1 : -1)) % names.length);
    event.preventDefault();
    app.set({ panel: next });
    main.querySelector(`[data-key="tab-${next}"]`)?.focus();
  }
  keysFrom.addEventListener("keydown", onkey);

  Object.assign(app.state, start);
  root.append(frame);
  find.update();
  showList(app);
  if (rows.length) show();
  else main.append(none("There are no trajectories."));
  return {
    set: app.set,
    get state() {
      return app.state;
    },
    end: () => keysFrom.removeEventListener("keydown", onkey),
  };
}

/** The turn of the first hit, where a search is on. */
function firstHit(app) {
  const turn = (app.state.hits?.get(app.state.trajectory) ?? []).findIndex((count, place) => place > 0 && count > 0);
  return turn > 0 ? turn : null;
}

/** Whom to compare with at first: another agent or run on the same question, else another attempt, else nobody. */
function partnerOf(app) {
  const { rows } = app.index;
  const here = rows[app.state.trajectory];
  const same = app.sameQuestion(app.state.trajectory);
  return same.find((place) => rows[place].agent !== here.agent || rows[place].run !== here.run) ?? same[0] ?? null;
}

function header(app, view) {
  const fact = (name, ...content) => h("div", {}, h("dt", {}, name), h("dd", {}, content));
  const { query } = app.state;
  return h(
    "header",
    { class: "ms-header" },
    h("h2", { dir: "auto" }, rich(view.question, query)),
    h(
      "dl",
      { class: "ms-about" },
      fact("answer", view.answer ? [h("span", { dir: "auto" }, rich(view.answer, query)), " "] : null, verdict(view)),
      view.golds.length > 0 &&
        fact(
          view.golds.length > 1 ? "golds" : "gold",
          view.golds.map((gold, place) => [
            place > 0 && h("span", { class: "ms-soft" }, " or "),
            h("span", { dir: "auto" }, rich([gold], query)),
          ]),
        ),
      fact("agent", app.label(app.state.trajectory)),
      fact("reward", number(view.reward, 3)),
      fact("advantage", signed(view.advantage)),
      fact("turns", number(view.turns.length)),
      fact("peak", view.peak === null ? MISSING : plural(view.peak, "token")),
      view.seconds !== null && fact("time", `${number(view.seconds, 1)} s`),
    ),
    view.error && h("p", { class: "ms-bad" }, `failed: ${view.error}`),
  );
}

function helpBox(app) {
  return h(
    "section",
    { class: "ms-help", "aria-label": "keys" },
    h(
      "dl",
      {},
      KEYS.map(([keys, text]) =>
        h(
          "div",
          {},
          h(
            "dt",
            {},
            keys.split(" ").map((key) => h("kbd", {}, key)),
          ),
          h("dd", {}, text),
        ),
      ),
    ),
    h(
      "p",
      { class: "ms-soft" },
      "Sources of sentences are found by words in common with the passages seen so far: a heuristic that knows no meaning. " +
        "Gold answers are marked by the scorer's own normal forms. A counterfactual ReAct context is this trajectory with its history kept, not a run of ReAct.",
    ),
    button("close", { class: "ms-link", "data-key": "close", onclick: () => app.set({ help: false }) }),
  );
}

/** In a notebook: the index is a trait, views and hits are asked for by message, `trajectory` and `turn` are linked both ways. */
function render({ model, el }) {
  const asked = new Map();
  let ticket = 0;
  const ask = (kind, fields) =>
    new Promise((resolve, reject) => {
      const id = `${Date.now()}-${ticket++}`;
      asked.set(id, { resolve, reject });
      model.send({ kind, id, ...fields });
    });
  const onmessage = (message) => {
    const { resolve, reject } = asked.get(message.id) ?? {};
    asked.delete(message.id);
    if (message.error) reject?.(new Error(message.error));
    else resolve?.(message.content);
  };
  model.on("msg:custom", onmessage);
  const source = {
    index: model.get("index"),
    view: (place) => ask("view", { trajectory: place }),
    search: async (query) => new Map(await ask("search", { query })),
  };
  const app = mount(el, source, {
    start: { trajectory: model.get("trajectory"), turn: model.get("turn") },
    changed: ({ trajectory, turn }) => {
      model.set("trajectory", trajectory);
      model.set("turn", turn);
      model.save_changes();
    },
  });
  const onchange = () => app.set({ trajectory: model.get("trajectory"), turn: model.get("turn") });
  model.on("change:trajectory", onchange);
  model.on("change:turn", onchange);
  return () => {
    app.end();
    model.off("msg:custom", onmessage);
    model.off("change:trajectory", onchange);
    model.off("change:turn", onchange);
  };
}

export default { render };
