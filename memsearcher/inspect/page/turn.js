// One turn: the strip of all turns above, then memory in, thought, search, passages, memory out, events; or it all raw.

const SIGNS = { kept: " ", moved: "↕", edited: "~", added: "+", dropped: "−" };

/** All turns at a glance: how large the memory was (or the context, where there is none) and what befell the gold answer. */
function strip(app, view) {
  const { turns } = view;
  const remembers = turns.some((turn) => turn.memory);
  const size = (turn) => (remembers ? (turn.memory?.length ?? 0) : (turn.tokens.total ?? 0));
  const largest = Math.max(1, ...turns.map(size));
  const unit = remembers ? "characters" : "tokens";
  const hits = app.state.hits?.get(app.state.trajectory);
  const columns = turns.map((turn, place) => {
    const names = turn.events.map((event) => event.name);
    const broken = turn.events.filter((event) => event.kind === "bad" && event.name !== "gold_lost");
    const said = [
      `turn ${place + 1}: ${remembers ? "memory" : "context"} of ${number(size(turn))} ${unit}`,
      ...["gold_found", "gold_entered", "gold_lost"].filter((name) => names.includes(name)).map(words),
      ...broken.map((event) => words(event.name)),
      hits?.[place + 1] ? plural(hits[place + 1], "hit") : "",
    ]
      .filter(Boolean)
      .join(", ");
    const bar = h("span", { class: turn.memory?.held ? "ms-bar ms-held" : "ms-bar" });
    bar.style.height = `${(100 * size(turn)) / largest}%`;
    return button(
      "",
      {
        class: "ms-column",
        "data-key": `turn-${place + 1}`,
        title: said,
        "aria-label": said,
        "aria-current": place + 1 === app.state.turn ? "step" : null,
        tabindex: "-1",
        onclick: () => app.set({ turn: place + 1 }),
      },
      h(
        "span",
        { class: "ms-flags", "aria-hidden": "true" },
        names.includes("gold_lost")
          ? h("span", { class: "ms-bad" }, "LOST")
          : names.includes("gold_entered")
            ? h("span", { class: "ms-good" }, "◆")
            : names.includes("gold_found")
              ? h("span", {}, "◇")
              : "",
        broken.length > 0 && h("span", { class: "ms-bad" }, "!"),
        hits?.[place + 1] > 0 && h("span", { class: "ms-hits" }, "•"),
      ),
      h("span", { class: "ms-well" }, bar),
      h("span", { class: "ms-number" }, String(place + 1)),
    );
  });
  const slider = h("input", {
    type: "range",
    min: "1",
    max: String(turns.length),
    step: "1",
    "data-key": "slider",
    "aria-label": "turn",
    "aria-valuetext": `turn ${app.state.turn} of ${turns.length}`,
    oninput: (event) => app.set({ turn: Number(event.target.value) }),
  });
  slider.value = String(app.state.turn);
  slider.style.setProperty("--ms-turns", turns.length);
  return h(
    "section",
    { class: "ms-strip", "aria-label": "all turns" },
    h(
      "p",
      { class: "ms-caption" },
      remembers ? "memory after each turn, characters" : "context of each turn, tokens",
      h("span", {}, `most ${number(largest)}`),
      remembers && h("span", {}, h("i", { class: "ms-swatch ms-held" }), "holds a gold answer"),
      h("span", {}, "◇ gold found, ", h("span", { class: "ms-good" }, "◆"), " entered"),
      h("span", { class: "ms-bad" }, "LOST"),
      h("span", {}, h("span", { class: "ms-bad" }, "!"), " malformed"),
    ),
    h("div", { class: "ms-columns" }, columns),
    turns.length > 1 && slider,
  );
}

const section = (label, ...content) =>
  h("section", { class: "ms-part" }, h("h3", {}, label), h("div", { class: "ms-content" }, content));
const none = (text) => h("p", { class: "ms-nothing" }, text);

function turnPanel(app, view) {
  const { query, raw, turn: which } = app.state;
  const turn = view.turns[which - 1];
  if (!turn) return none(view.error ? "It failed before its first turn." : "There are no turns.");
  if (raw) return rawTurn(view, which, query);
  const last = which === view.turns.length;
  return h(
    "div",
    { class: "ms-turn" },
    turn.memory &&
      section("memory in", plain(turn.memory.before) ? prose(turn.memory.before, query, "memory in") : none("empty")),
    turn.thought && section("thought", prose(turn.thought, query, "thought")),
    turn.steps.map((step) => [
      section(step.name, call(step, query)),
      section("came back", results(app, view, step, query)),
    ]),
    last &&
      view.answer &&
      section("answer", h("p", { class: "ms-answer", dir: "auto" }, rich(view.answer, query), " ", verdict(view))),
    last && view.error && section("failed", h("p", { class: "ms-bad" }, view.error)),
    turn.memory && section(app.state.diff ? "memory out" : "memory out, as it is", memoryOut(app, view, turn)),
    turn.events.length > 0 && section("events", h("ul", { class: "ms-events" }, turn.events.map(eventLine))),
    section("context", contextBar(turn.tokens)),
  );
}

function call(step, query) {
  const { query: asked, ...others } = step.arguments;
  return [
    asked !== undefined && h("p", { class: "ms-query", dir: "auto" }, rich([asked], query)),
    Object.entries(others).map(([name, value]) =>
      h("p", { class: "ms-argument" }, `${name}: `, h("span", { dir: "auto" }, rich([value], query))),
    ),
  ];
}

function results(app, view, step, query) {
  if (step.failed) return none("nothing: the environment failed");
  return [
    step.text && prose(step.text, query, "what came back"),
    step.outcome && [
      h("p", {}, h("b", {}, `outcome ${number(step.outcome.reward, 3)}`)),
      h(
        "table",
        { class: "ms-parts", "aria-label": "what the outcome is made of" },
        h(
          "tbody",
          {},
          Object.entries(step.outcome.parts).map(([name, value]) =>
            h("tr", {}, h("th", { scope: "row", dir: "auto" }, name), h("td", { dir: "auto" }, value)),
          ),
        ),
      ),
    ],
    step.passages.length > 0 &&
      h(
        "ol",
        { class: "ms-passages" },
        step.passages.map(({ passage, rank, score }) => {
          const { title, text } = view.passages[passage];
          return h(
            "li",
            { value: String(rank), "data-passage": String(passage) },
            h(
              "p",
              { class: "ms-title" },
              h("span", { class: "ms-rank" }, `${rank}`),
              h("span", { dir: "auto" }, rich(title, query)),
              h("span", { class: "ms-score", title: "the retriever's score" }, number(score, 2)),
            ),
            prose(text, query, `passage ${rank}`),
          );
        }),
      ),
  ];
}

/** The new memory line by line: what became of each sentence, and where it most likely comes from. */
function memoryOut(app, view, turn) {
  const { lines } = turn.memory;
  const { diff, query, open } = app.state;
  const shown = diff ? lines : lines.filter((line) => line.change !== "dropped");
  if (!shown.length) return none("empty");
  const counts = Object.keys(SIGNS)
    .map((change) => [change, lines.filter((line) => line.change === change).length])
    .filter(([, count]) => count);
  return [
    h(
      "p",
      { class: "ms-caption" },
      diff &&
        counts.map(([change, count]) =>
          h("span", { class: `ms-${change}-word` }, `${SIGNS[change]} ${count} ${change}`),
        ),
      h("span", { class: "ms-right", title: "found by words in common; it knows no meaning" }, "source (heuristic)"),
    ),
    h(
      "ul",
      { class: "ms-memory" },
      shown.map((line, place) => {
        const key = `source-${place}`;
        const source = line.source && view.sources[line.source.number];
        const runs = diff || line.change !== "edited" ? line.text : line.text.map(undone).filter(Boolean);
        return h(
          "li",
          { class: diff ? `ms-sentence ms-${line.change}` : "ms-sentence" },
          diff &&
            h(
              "span",
              { class: "ms-sign" },
              h("span", { "aria-hidden": "true" }, SIGNS[line.change]),
              h("span", { class: "ms-aside" }, line.change),
            ),
          h("div", { class: "ms-says" }, prose(runs, query, "sentence")),
          h(
            "span",
            { class: "ms-from" },
            line.change === "dropped"
              ? null
              : source
                ? button(`turn ${source.turn} · #${source.rank} · ${number(line.source.score, 2)}`, {
                    class: "ms-link",
                    "data-key": key,
                    "aria-expanded": String(open === key),
                    title: "show the passage",
                    onclick: () => app.set({ open: open === key ? null : key }),
                  })
                : h(
                    "span",
                    { class: "ms-unsupported", title: "no passage seen so far holds these words" },
                    "unsupported",
                  ),
          ),
          source &&
            open === key &&
            h(
              "blockquote",
              { class: "ms-quote" },
              h(
                "p",
                { class: "ms-title" },
                h("span", { dir: "auto" }, rich(view.passages[source.passage].title)),
                source.turn !== app.state.turn &&
                  button(`go to turn ${source.turn}`, {
                    class: "ms-link",
                    "data-key": "go",
                    onclick: () => app.set({ turn: source.turn }),
                  }),
              ),
              prose(source.text, "", "source passage"),
            ),
        );
      }),
    ),
  ];
}

/** A run of an edited sentence as it is now: nothing for words that are gone, no sign of those that are new. */
function undone(run) {
  if (typeof run === "string") return run;
  const [text, letters] = run;
  return letters.includes("d") ? null : [text, letters.replace("i", "")];
}

function eventLine(event) {
  const details = event.details.filter(Boolean);
  return h(
    "li",
    { class: `ms-event ms-${event.kind}` },
    h("b", {}, words(event.name)),
    event.count > 1 && ` ×${event.count}`,
    details.length > 0 && h("span", { class: "ms-detail", dir: "auto" }, details.join("; ")),
    event.derived &&
      h(
        "span",
        { class: "ms-tag", title: "not on the record: it follows from golds, passages and memories" },
        "derived",
      ),
  );
}

const verdict = (view) => {
  const { key, sign, text } = outcome(view);
  return h("span", { class: `ms-outcome ms-${key}` }, `${sign} ${text}`);
};

/** The turn's contexts as the model saw them, segment by segment; what an earlier turn had already is folded. */
function rawTurn(view, turn, query) {
  const ends = (which) => {
    const last = new Map();
    for (const call of view.turns[which - 1]?.calls ?? [])
      last.set(call.conversation, Math.max(call.segment, last.get(call.conversation) ?? 0));
    return last;
  };
  const earlier = ends(turn - 1);
  const { calls } = view.turns[turn - 1];
  if (!calls.length) return none("No model call is on the record of this turn.");
  return h(
    "div",
    { class: "ms-raw" },
    [...ends(turn)].map(([conversation, end]) => {
      const segments = view.conversations[conversation].slice(0, end + 1);
      const old = earlier.has(conversation) ? earlier.get(conversation) + 1 : 0;
      return [
        h(
          "p",
          { class: "ms-caption" },
          `conversation ${conversation + 1} of ${view.conversations.length}`,
          calls
            .filter((call) => call.conversation === conversation)
            .map((call) =>
              h(
                "span",
                {},
                `${call.purpose}: ${number(call.context)} tokens in, ${number(call.sampled)} written, ended by ${call.finish}`,
              ),
            ),
        ),
        old > 0 &&
          h(
            "details",
            {},
            h("summary", {}, `what earlier turns had: ${plural(old, "segment")}`),
            segments.slice(0, old).map((each) => rawSegment(each, query)),
          ),
        segments.slice(old).map((each) => rawSegment(each, query)),
      ];
    }),
  );
}

function rawSegment(segment, query) {
  return h(
    "div",
    { class: `ms-segment ms-in-${segment.part}` },
    h(
      "p",
      { class: "ms-origin" },
      h("b", {}, segment.part),
      segment.part !== segment.role && h("span", {}, segment.role),
      segment.tokens !== null && h("span", { title: "tokens" }, number(segment.tokens)),
      segment.dropped > 0 && h("span", { class: "ms-bad" }, `${segment.dropped} cut`),
    ),
    prose([segment.text], query, segment.part),
  );
}
