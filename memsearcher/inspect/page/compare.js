// Groups of attempts, and two trajectories side by side.

/** The attempts at this question: first the group (same run, same agent), then those of other agents and runs. */
function groupPanel(app) {
  const { rows, groups } = app.index;
  const here = app.state.trajectory;
  const group = groups.find((each) => each.members.includes(here));
  const members = group ? group.members : [here];
  const others = app.sameQuestion(here).filter((place) => !members.includes(place));
  const rewards = members.map((place) => rows[place].reward).filter((reward) => reward !== null);
  return h(
    "div",
    { class: "ms-panel" },
    h(
      "p",
      { class: "ms-caption" },
      h("b", {}, plural(members.length, "attempt")),
      `by ${rows[here].agent}`,
      h(
        "span",
        {},
        rewards.length === 0
          ? "no rewards on the record"
          : `mean reward ${number(rewards.reduce((a, b) => a + b, 0) / rewards.length, 3)} over ${rewards.length}`,
      ),
      group?.gradient === false &&
        h(
          "span",
          {
            class: "ms-tag ms-bad",
            title: "all rewards are equal, so every advantage is 0 and GRPO learns nothing here",
          },
          "no gradient",
        ),
      group?.gradient === true && h("span", { class: "ms-tag" }, "rewards differ"),
    ),
    attempts(app, members),
    others.length > 0 && [h("h3", { class: "ms-heading" }, "The same question elsewhere"), attempts(app, others)],
  );
}

function attempts(app, places) {
  const { rows } = app.index;
  const several = new Set(places.map((place) => app.label(place).replace(/#\d+$/, ""))).size > 1;
  const head = [
    several && "run, agent",
    "attempt",
    "answer",
    "reward",
    "advantage",
    "turns",
    "peak",
    "events",
    "",
  ].filter((each) => each !== false);
  return h(
    "div",
    { class: "ms-scroll", tabindex: "0", role: "region", "aria-label": "attempts" },
    h(
      "table",
      { class: "ms-table" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((name) =>
            name
              ? h(
                  "th",
                  { scope: "col", class: ["reward", "advantage", "turns", "peak"].includes(name) ? "ms-num" : null },
                  name,
                )
              : h("td", {}),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        places.map((place) => {
          const row = rows[place];
          const result = outcome(row);
          const now = place === app.state.trajectory;
          const odd = row.events.filter((name) => name !== "passage_cut" && name !== "gold_found");
          return h(
            "tr",
            { "aria-current": now ? "true" : null },
            several && h("td", {}, app.label(place).replace(/#\d+$/, "")),
            h(
              "th",
              { scope: "row" },
              button(`#${row.sample}`, {
                class: "ms-link",
                "data-key": `open-${place}`,
                "aria-label": `open attempt ${row.sample}`,
                onclick: () => app.set({ trajectory: place }),
              }),
            ),
            h(
              "td",
              {},
              h(
                "span",
                { class: `ms-outcome ms-${result.key}` },
                `${result.sign} `,
                h("span", { dir: "auto" }, row.answer ?? result.text),
              ),
            ),
            h("td", { class: "ms-num" }, number(row.reward, 3)),
            h(
              "td",
              { class: "ms-num", title: row.advantage === null ? "none on the record" : null },
              signed(row.advantage),
            ),
            h("td", { class: "ms-num" }, number(row.turns)),
            h("td", { class: "ms-num" }, number(row.peak)),
            h("td", { class: "ms-soft" }, odd.map(words).join(", ")),
            h(
              "td",
              {},
              now
                ? h("span", { class: "ms-soft" }, "shown")
                : button("compare", {
                    class: "ms-link",
                    "data-key": `compare-${place}`,
                    "aria-label": `compare with attempt ${row.sample} of ${row.agent}`,
                    onclick: () => app.set({ panel: "compare", partner: place }),
                  }),
            ),
          );
        }),
      ),
    ),
  );
}

/** The first turn in which two views ask differently; as `first_divergence` in Python has it. */
function firstDivergence(first, second) {
  for (let place = 0; place < Math.max(first.turns.length, second.turns.length); place++) {
    const asked = [first, second].map((view) => JSON.stringify(view.turns[place]?.asked ?? []));
    if (asked[0] !== asked[1]) return place + 1;
  }
  return null;
}

function comparePanel(app, view, other) {
  const here = app.state.trajectory;
  const same = app.sameQuestion(here);
  const rest = app.places.filter((place) => place !== here && !same.includes(place));
  const option = (place) =>
    h("option", { value: String(place) }, `${app.label(place)} · ${app.index.rows[place].question}`.slice(0, 110));
  const choice = h(
    "select",
    {
      "data-key": "partner",
      "aria-label": "compare with",
      onchange: (event) => app.set({ partner: event.target.value === "" ? null : Number(event.target.value) }),
    },
    h("option", { value: "" }, "choose a trajectory"),
    same.length > 0 && h("optgroup", { label: "the same question" }, same.map(option)),
    rest.length > 0 && h("optgroup", { label: "other questions in the list" }, rest.slice(0, 500).map(option)),
  );
  choice.value = app.state.partner === null ? "" : String(app.state.partner);
  const pick = h("p", { class: "ms-caption" }, h("label", {}, "compare with ", choice));
  if (!other)
    return h(
      "div",
      { class: "ms-panel" },
      pick,
      none("Two trajectories, aligned by turn; the first turn in which they ask differently is marked."),
    );
  const parts = firstDivergence(view, other);
  const side = (each, place) =>
    h(
      "th",
      { scope: "col" },
      h("p", { class: "ms-name" }, app.label(place)),
      h(
        "p",
        { class: "ms-soft" },
        each.answer && [h("span", { dir: "auto" }, plain(each.answer)), " "],
        verdict(each),
        each.reward !== null && ` · reward ${number(each.reward, 3)}`,
        each.advantage !== null && ` · advantage ${signed(each.advantage)}`,
        ` · ${plural(each.turns.length, "turn")} · peak ${number(each.peak)}`,
      ),
    );
  const length = Math.max(view.turns.length, other.turns.length);
  return h(
    "div",
    { class: "ms-panel" },
    pick,
    h(
      "p",
      { class: "ms-caption" },
      h(
        "span",
        {},
        parts === null
          ? "They ask the same in every turn."
          : [
              "They first ask differently in ",
              button(`turn ${parts}`, {
                class: "ms-link",
                "data-key": "parts",
                onclick: () => app.set({ turn: parts }),
              }),
              ".",
            ],
      ),
      h(
        "span",
        { class: "ms-right" },
        app.state.raw ? "replies as they were written" : "press r for the replies as they were written",
      ),
    ),
    h(
      "table",
      { class: "ms-compare" },
      h("thead", {}, h("tr", {}, h("td", {}), side(view, here), side(other, app.state.partner))),
      h(
        "tbody",
        {},
        Array.from({ length }, (_, place) =>
          h(
            "tr",
            {
              class: place + 1 === parts ? "ms-parts" : null,
              "aria-current": place + 1 === app.state.turn ? "true" : null,
            },
            h(
              "th",
              { scope: "row" },
              String(place + 1),
              place + 1 === parts && h("span", { class: "ms-tag" }, "differs"),
            ),
            [view, other].map((each) => h("td", {}, happenings(app, each, each.turns[place], place))),
          ),
        ),
      ),
    ),
  );
}

function happenings(app, view, turn, place) {
  const { query, raw } = app.state;
  if (!turn) return none("it has ended");
  if (raw)
    return turn.calls.map((call) =>
      h("div", { class: "ms-written" }, prose([view.conversations[call.conversation][call.segment].text], query, "reply")),
    );
  const bare = (name, ...content) =>
    h("div", { class: "ms-pair" }, h("span", { class: "ms-soft" }, name), h("div", {}, content));
  return [
    turn.thought && bare("thought", prose(turn.thought, query, "thought")),
    turn.steps.map((step) => [
      bare(step.name, call(step, query)),
      bare(
        "came back",
        step.failed
          ? none("nothing: it failed")
          : step.passages.length
            ? h(
                "ol",
                { class: "ms-titles" },
                step.passages.map(({ passage, rank }) =>
                  h("li", { value: String(rank), dir: "auto" }, rich(view.passages[passage].title, query)),
                ),
              )
            : step.text && prose(step.text, query, "what came back"),
      ),
    ]),
    turn.memory && bare("memory", plain(turn.memory.after) ? prose(turn.memory.after, query, "memory") : none("empty")),
    place === view.turns.length - 1 &&
      bare(
        "answer",
        view.answer ? h("b", { dir: "auto" }, rich(view.answer, query)) : none("none"),
        " ",
        verdict(view),
      ),
    bare("tokens", number(turn.tokens.total)),
    turn.events.some((event) => event.kind !== "plain") &&
      bare(
        "events",
        turn.events
          .filter((event) => event.kind !== "plain")
          .map((event) => h("span", { class: `ms-event ms-${event.kind}` }, words(event.name), " ")),
      ),
  ];
}
