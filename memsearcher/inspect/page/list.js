// The list: search, filters, order, and one line a trajectory.

const OUTCOMES = {
  right: "right",
  partly: "partly right",
  wrong: "wrong",
  ended: "outcome of the environment",
  none: "no answer",
  failed: "failed",
  unscored: "not scored",
};
const ORDERS = {
  order: ["as recorded", (row, number) => number],
  hits: ["hits", (row, number, app) => app.hitsOf(number)],
  reward: ["reward", (row) => row.reward],
  em: ["exact match", (row) => row.em],
  turns: ["turns", (row) => row.turns],
  peak: ["peak tokens", (row) => row.peak],
  question: ["question", (row) => row.question.toLowerCase()],
};
const NO_FILTERS = {
  run: "",
  agent: "",
  outcome: "",
  event: "",
  turnsFrom: "",
  turnsTo: "",
  rewardFrom: "",
  rewardTo: "",
};

/** The places of the trajectories that pass search and filters, in order. */
function chosen(app) {
  const { rows } = app.index;
  const { filters, hits, by, falling } = app.state;
  const within = (value, from, to) =>
    (from === "" && to === "") ||
    (value !== null && (from === "" || value >= Number(from)) && (to === "" || value <= Number(to)));
  const passes = (row, place) =>
    (!hits || hits.has(place)) &&
    (filters.run === "" || row.run === Number(filters.run)) &&
    (filters.agent === "" || row.agent === filters.agent) &&
    (filters.outcome === "" || outcome(row).key === filters.outcome) &&
    (filters.event === "" || row.events.includes(filters.event)) &&
    within(row.turns, filters.turnsFrom, filters.turnsTo) &&
    within(row.reward, filters.rewardFrom, filters.rewardTo);
  const value = ORDERS[by][1];
  const sign = falling ? -1 : 1;
  return rows
    .map((row, place) => [place, value(row, place, app)])
    .filter(([place]) => passes(rows[place], place))
    .sort(([a, x], [b, y]) => {
      if (x === y) return a - b;
      if (x === null || y === null) return x === null ? 1 : -1; // what is missing comes last, whichever way
      return (x < y ? -1 : 1) * sign;
    })
    .map(([place]) => place);
}

/** Search box, filters and sorting; built once, so that typing is never interrupted. */
function findBox(app) {
  const { rows, runs } = app.index;
  const agents = [...new Set(rows.map((row) => row.agent))].sort();
  const events = [...new Set(rows.flatMap((row) => row.events))].sort();
  const filter = (name) => (event) => app.set({ filters: { ...app.state.filters, [name]: event.target.value } });
  const select = (label, name, options) =>
    h(
      "label",
      { class: "ms-field" },
      h("span", {}, label),
      h(
        "select",
        { name, onchange: filter(name) },
        h("option", { value: "" }, "any"),
        options.map(([value, text]) => h("option", { value }, text)),
      ),
    );
  const range = (label, name, step) =>
    h(
      "div",
      { class: "ms-field", role: "group", "aria-label": label },
      h("span", {}, label),
      ["From", "To"].map((end) =>
        h("input", {
          type: "number",
          step,
          name: name + end,
          placeholder: end.toLowerCase(),
          "aria-label": `${label} ${end.toLowerCase()}`,
          oninput: filter(name + end),
        }),
      ),
    );

  const search = h("input", {
    type: "search",
    name: "search",
    placeholder: "Search all text  /",
    "aria-label": "search all text",
    autocomplete: "off",
    spellcheck: "false",
    oninput: (event) => app.search(event.target.value),
    onkeydown: (event) => {
      if (event.key === "Enter") app.list.focus();
      if (event.key === "Escape") {
        search.value = "";
        app.search("");
        app.list.focus();
      }
    },
  });
  const fields = h(
    "div",
    { class: "ms-fields" },
    runs.length > 1 &&
      select(
        "run",
        "run",
        runs.map((name, place) => [String(place), name]),
      ),
    agents.length > 1 &&
      select(
        "agent",
        "agent",
        agents.map((name) => [name, name]),
      ),
    select("outcome", "outcome", Object.entries(OUTCOMES)),
    select(
      "event",
      "event",
      events.map((name) => [name, words(name)]),
    ),
    range("turns", "turns", "1"),
    range("reward", "reward", "any"),
  );
  const clear = button("clear", {
    class: "ms-link",
    onclick: () => {
      for (const input of fields.querySelectorAll("select, input")) input.value = "";
      app.set({ filters: { ...NO_FILTERS } });
    },
  });
  const count = h("span", {}, "Filters");
  const sort = h(
    "label",
    { class: "ms-sort" },
    h("span", {}, "sort "),
    h(
      "select",
      { name: "sort", onchange: (event) => app.set({ by: event.target.value }) },
      Object.entries(ORDERS).map(([value, [text]]) => h("option", { value }, text)),
    ),
  );
  const way = button("↑", {
    class: "ms-link",
    name: "falling",
    "aria-label": "falling order",
    "aria-pressed": "false",
    onclick: () => app.set({ falling: !app.state.falling }),
  });
  const update = () => {
    const active = Object.values(app.state.filters).filter((value) => value !== "").length;
    count.textContent = active ? `Filters (${active})` : "Filters";
    clear.hidden = !active;
    way.textContent = app.state.falling ? "↓" : "↑";
    way.setAttribute("aria-pressed", String(app.state.falling));
  };
  const box = h(
    "div",
    { class: "ms-find", role: "search" },
    search,
    h(
      "div",
      { class: "ms-row" },
      h("details", {}, h("summary", {}, count), fields, clear),
      h("span", { class: "ms-row" }, sort, way),
    ),
  );
  return { box, search, update };
}

/** One line of the list. */
function line(app, place) {
  const row = app.index.rows[place];
  const result = outcome(row);
  const hits = app.hitsOf(place);
  const lost = row.events.includes("gold_lost");
  return h(
    "li",
    { role: "option", id: app.optionId(place), "data-place": place, class: "ms-line" },
    h("span", { class: "ms-question", dir: "auto" }, row.question),
    h(
      "span",
      { class: "ms-facts" },
      h(
        "span",
        { class: `ms-outcome ms-${result.key}` },
        `${result.sign} `,
        h("span", { dir: "auto" }, row.answer ?? result.text),
      ),
      h("span", {}, plural(row.turns, "turn")),
      row.reward !== null && h("span", {}, `reward ${number(row.reward, 2)}`),
      app.severalAgents && h("span", {}, row.agent),
      lost && h("span", { class: "ms-bad" }, "gold LOST"),
      hits > 0 && h("span", { class: "ms-hits" }, plural(hits, "hit")),
    ),
  );
}

function showList(app) {
  const places = (app.places = chosen(app));
  app.list.replaceChildren(...places.map((place) => line(app, place)));
  const { hits, query } = app.state;
  const total = hits ? places.reduce((sum, place) => sum + app.hitsOf(place), 0) : 0;
  const among = `${number(places.length)} of ${plural(app.index.rows.length, "trajectory", "trajectories")}`;
  app.count.textContent = app.state.searching
    ? app.state.searching
    : query && hits
      ? `${plural(total, "hit")} in ${among}`
      : among;
  markSelected(app);
}

function markSelected(app) {
  for (const option of app.list.querySelectorAll('[aria-selected="true"]'))
    option.setAttribute("aria-selected", "false");
  const option = app.list.querySelector(`[data-place="${app.state.trajectory}"]`);
  if (!option) return app.list.removeAttribute("aria-activedescendant");
  option.setAttribute("aria-selected", "true");
  app.list.setAttribute("aria-activedescendant", option.id);
  const [box, frame] = [option.getBoundingClientRect(), app.list.getBoundingClientRect()];
  if (box.top < frame.top) app.list.scrollTop -= frame.top - box.top;
  if (box.bottom > frame.bottom) app.list.scrollTop += box.bottom - frame.bottom;
}
