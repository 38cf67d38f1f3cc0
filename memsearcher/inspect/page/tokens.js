// Tokens: what each context is made of, beside a history that was kept.

const KINDS = ["prompt", "question", "memory", "history", "passages", "reply"];

const largestOf = (turns) => Math.max(1, ...turns.flatMap((turn) => [turn.tokens.total ?? 0, turn.tokens.react ?? 0]));

/** A stacked bar; `scale` is the number of tokens that fill the width. */
function stacked(tokens, scale) {
  const share = (count) => `${(100 * count) / scale}%`;
  const bar = h("span", { class: "ms-stack", "aria-hidden": "true" });
  const kinds = tokens.kinds ? KINDS.map((kind) => [kind, tokens.kinds[kind]]) : [["unknown", tokens.total ?? 0]];
  for (const [kind, count] of kinds) {
    if (!count) continue;
    const piece = h("span", { class: `ms-kind ms-of-${kind}`, title: `${kind}: ${plural(count, "token")}` });
    piece.style.width = share(count);
    bar.append(piece);
  }
  return bar;
}

const swatch = (name) => h("i", { class: `ms-swatch ${name}` });

function contextBar(tokens) {
  if (tokens.total === null && !tokens.kinds) return none("The engine did not count its tokens.");
  const kinds = tokens.kinds
    ? KINDS.filter((kind) => tokens.kinds[kind]).map((kind) =>
        h("span", {}, swatch(`ms-of-${kind}`), `${kind} ${number(tokens.kinds[kind])}`),
      )
    : [];
  return [
    stacked(tokens, Math.max(1, tokens.total ?? 0, tokens.react ?? 0)),
    h(
      "p",
      { class: "ms-caption" },
      h("span", {}, h("b", {}, plural(tokens.total, "token"))),
      kinds,
      tokens.react !== null &&
        h("span", { class: "ms-right" }, `${number(tokens.react)} had the history been kept (counterfactual ReAct)`),
    ),
  ];
}

/** Every turn's context, and beside it the counterfactual ReAct context or another trajectory of the question, as it was measured. */
function tokensPanel(app, view, beside) {
  const others = app.sameQuestion(app.state.trajectory);
  const measured = beside ? beside.turns.map((turn) => turn.tokens.total) : null;
  const named = measured ? app.label(app.state.beside) : "counterfactual ReAct";
  const length = Math.max(view.turns.length, measured?.length ?? 0);
  const value = (place) => (measured ? (measured[place] ?? null) : (view.turns[place]?.tokens.react ?? null));
  const scale = Math.max(largestOf(view.turns), ...(measured ?? []).map((count) => count ?? 0));
  const kinds = KINDS.filter((kind) => view.turns.some((turn) => turn.tokens.kinds?.[kind]));
  const known = Array.from({ length }, (_, place) => value(place)).filter((count) => count !== null);
  const choice = h(
    "select",
    {
      "data-key": "beside",
      "aria-label": "beside it",
      onchange: (event) => app.set({ beside: event.target.value === "" ? null : Number(event.target.value) }),
    },
    h("option", { value: "" }, "counterfactual ReAct (this trajectory, its history kept)"),
    others.map((place) => h("option", { value: String(place) }, `measured: ${app.label(place)}`)),
  );
  choice.value = app.state.beside === null ? "" : String(app.state.beside);
  return h(
    "div",
    { class: "ms-panel" },
    h(
      "p",
      { class: "ms-caption" },
      "the longest context of each turn, in tokens, reply included",
      h("label", { class: "ms-right" }, "beside it ", choice),
    ),
    h(
      "p",
      { class: "ms-caption" },
      kinds.map((kind) => h("span", {}, swatch(`ms-of-${kind}`), kind)),
      known.length > 0 && h("span", {}, swatch("ms-other"), named),
      peak(
        view.turns.map((turn) => turn.tokens.total),
        known,
        named,
      ),
    ),
    h(
      "div",
      { class: "ms-scroll", tabindex: "0", role: "region", "aria-label": "tokens of each turn" },
      h(
        "table",
        { class: "ms-table" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "turn"),
            h("th", { scope: "col", class: "ms-wide" }, "context"),
            kinds.map((kind) => h("th", { scope: "col", class: "ms-num" }, kind)),
            h("th", { scope: "col", class: "ms-num" }, "total"),
            h("th", { scope: "col", class: "ms-num" }, named),
          ),
        ),
        h(
          "tbody",
          {},
          Array.from({ length }, (_, place) => {
            const tokens = view.turns[place]?.tokens;
            const other = value(place);
            const shadow = h("span", { class: "ms-stack ms-other", "aria-hidden": "true" });
            shadow.style.width = `${(100 * (other ?? 0)) / scale}%`;
            return h(
              "tr",
              { "aria-current": place + 1 === app.state.turn ? "true" : null },
              h(
                "th",
                { scope: "row" },
                tokens
                  ? button(String(place + 1), {
                      class: "ms-link",
                      "data-key": `row-${place}`,
                      "aria-label": `turn ${place + 1}`,
                      onclick: () => app.set({ turn: place + 1, panel: "turn" }),
                    })
                  : String(place + 1),
              ),
              h("td", { class: "ms-wide" }, tokens && stacked(tokens, scale), other !== null && shadow),
              kinds.map((kind) => h("td", { class: "ms-num" }, number(tokens?.kinds?.[kind]))),
              h("td", { class: "ms-num" }, h("b", {}, number(tokens?.total))),
              h("td", { class: "ms-num" }, number(other)),
            );
          }),
        ),
      ),
    ),
    view.turns.every((turn) => turn.tokens.react === null) &&
      !measured &&
      none("There is no counterfactual here: the history was kept, or the engine gave no token ids."),
  );
}

/** The largest contexts of both, and how many times larger the other is. */
function peak(ours, theirs, named) {
  if (!theirs.length || ours.includes(null)) return null;
  const [mine, other] = [Math.max(...ours), Math.max(...theirs)];
  return h(
    "span",
    { class: "ms-right" },
    `peak ${number(mine)}, ${named} ${number(other)}: ${number(other / mine, 2)} times`,
  );
}
