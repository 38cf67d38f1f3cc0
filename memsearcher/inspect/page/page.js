// The page of its own: everything is in the file, packed; the address holds what is shown.

async function unpack(element) {
  const bytes = Uint8Array.from(atob(element.textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function openPage() {
  const index = JSON.parse(document.getElementById("index").textContent);
  // The browser still reads the file: the first block stands before this script, and of the others the last may be torn.
  const loaded = new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  const blocks = document.getElementsByClassName("trajectory");
  const block = async (place) => {
    if (place > 0 && place >= blocks.length - 1 && document.readyState === "loading") await loaded;
    return unpack(blocks[place]);
  };
  const names = index.rows.map((row) => (index.runs.length > 1 ? `${index.runs[row.run]}/${row.id}` : row.id));
  const search = async (query, tell) => {
    const wanted = query.toLowerCase();
    const found = new Map();
    for (const place of index.rows.keys()) {
      if (place % 50 === 0) tell(`searching ${number(place)} of ${number(index.rows.length)}…`);
      const { texts } = await block(place);
      const counts = texts.map((text) => text.toLowerCase().split(wanted).length - 1);
      if (counts.some((count) => count > 0)) found.set(place, counts);
    }
    return found;
  };
  const read = () => {
    const hash = new URLSearchParams(location.hash.slice(1));
    const place = (name) => (hash.has(name) ? names.indexOf(hash.get(name)) : -1);
    const state = {};
    if (place("trajectory") >= 0) state.trajectory = place("trajectory");
    if (Number(hash.get("turn")) > 0) state.turn = Math.floor(Number(hash.get("turn")));
    if (Object.hasOwn(PANELS, hash.get("view"))) state.panel = hash.get("view");
    if (place("with") >= 0) state.partner = place("with");
    return state;
  };
  let written = location.hash;
  const app = mount(
    document.body,
    { index, view: async (place) => (await block(place)).view, search },
    {
      start: read(),
      keysFrom: document,
      changed: ({ trajectory, turn, panel, partner }) => {
        const hash = new URLSearchParams({ trajectory: names[trajectory], turn });
        if (panel !== "turn") hash.set("view", panel);
        if (panel === "compare" && partner !== null) hash.set("with", names[partner]);
        written = `#${hash}`;
        history.replaceState(null, "", written);
      },
    },
  );
  window.addEventListener("hashchange", () => location.hash !== written && app.set({ panel: "turn", ...read() }));
}

openPage();
