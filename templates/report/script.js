
"use strict";
(() => {
  // --- tables that sort --------------------------------------------------------------------------
  function valueOf(row, column, numeric) {
    const cell = row.cells[column];
    if (!numeric) return cell.textContent.trim();
    const text = cell.dataset.v ?? cell.textContent;
    return text.trim() === "" ? NaN : Number(text);
  }

  function sortBy(button) {
    const head = button.closest("th"), table = button.closest("table"), body = table.tBodies[0];
    const numeric = button.dataset.kind === "num", column = head.cellIndex, before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric;
    const rows = [...body.rows].map((row) => [valueOf(row, column, numeric), row]);
    rows.sort(([a], [b]) => {
      if (!numeric) return (down ? -1 : 1) * a.localeCompare(b, "en", { numeric: true });
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return down ? b - a : a - b;
    });
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map(([, row]) => row));
  }
  for (const button of document.querySelectorAll("button.sort")) button.addEventListener("click", () => sortBy(button));

  // --- what is folded is printed too -------------------------------------------------------------
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details.more:not([open])")];
    for (const one of unfolded) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of unfolded) one.open = false; });

  // --- games -------------------------------------------------------------------------------------
  const viewer = document.getElementById("viewer");
  if (!viewer) return;
  const STEP = 25, LONG = 1100, LONG_LINES = 16;
  const index = JSON.parse(document.getElementById("games-index").textContent);
  const [pickModel, pickOutcome, search, count, list, more] =
    ["pick-model", "pick-outcome", "search", "games-count", "games-list", "more-games"].map((id) => document.getElementById(id));
  const loaded = new Map();
  let shared = null, model = -1, games = [], found = [], shown = 0, turn = 0;

  async function unpack(id) {
    const packed = atob(document.getElementById(id).textContent.trim());
    if (packed === "") return [];
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const text = await new Response(stream).text();
    return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
  }

  function make(tag, kind, text) {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const WORDS = { 2: "model wins clearly", 1: "model wins", 0: "tie", "-1": "baseline wins", "-2": "baseline wins clearly" };
  const kindOf = (value) => (value === null ? "none" : value > 0 ? "win" : value < 0 ? "loss" : "tie");
  const disagrees = (told) => told.v[0] !== null && told.v[1] !== null && told.v[0] * told.v[1] < 0;

  function outcome(game) {
    if (game.g.some(disagrees)) return "disagree";
    if (game.g.some((told) => told.v.includes(null))) return "none";
    return kindOf(Math.sign(game.g.reduce((sum, told) => sum + told.v[0] + told.v[1], 0)));
  }
  const OUTCOMES = { disagree: "orders disagree", win: "model wins", loss: "baseline wins", tie: "tie", none: "no verdict" };

  function haystack(game) {
    if (game.all === undefined) {
      const common = shared.get(game.u) ?? { p: "", a: [] };
      const texts = [game.u, game.c, common.p, game.p, common.a[game.b], game.a, ...game.g.flatMap((told) => [...told.w, ...told.l])];
      game.all = texts.map((text) => text ?? "").join("\n").toLowerCase();
    }
    return game.all;
  }

  function words(text, missing) {
    const box = make("div");
    if (text === null || text === undefined || text.trim() === "") {
      box.append(make("p", "empty", text === null || text === undefined ? missing : "(empty)"));
      return box;
    }
    const block = make("div", "words", text);
    block.dir = "auto";
    box.append(block);
    if (text.length > LONG || text.split("\n").length > LONG_LINES) {
      const button = make("button", "plain"), name = `${text.length.toLocaleString("en")} characters`;
      button.type = "button";
      const fold = (folded) => {
        block.classList.toggle("long", folded);
        button.setAttribute("aria-expanded", String(!folded));
        button.textContent = folded ? `Show all ${name}` : "Show less";
      };
      button.addEventListener("click", () => fold(!block.classList.contains("long")));
      fold(true);
      box.append(button);
    }
    return box;
  }

  function titled(kind, title, content) {
    const box = make("div", kind);
    const head = make("h4", "", title);
    head.dir = "auto";
    box.append(head, content);
    return box;
  }

  function verdictBox(told, order) {
    const box = make("div", "box"), value = told.v[order], how = make("p", "how");
    how.append(make("span", `verdict ${kindOf(value)}`, value === null ? "no verdict" : WORDS[value]));
    how.append(` ${told.l[order] === null ? "" : `[[${told.l[order]}]]`}`);
    box.append(make("h4", "", order === 0 ? "First order: A is the baseline" : "Second order: A is the model"), how);
    box.append(words(told.w[order] === "" ? null : told.w[order], "(the judge's words are not in the data)"));
    return box;
  }

  function fill(body, game) {
    const common = shared.get(game.u) ?? { p: null, a: [] };
    body.append(make("p", "small", `${game.u} · ${game.c || "no category"}`));
    const missing = "(not in the data)", baseline = index.baselines[game.b];
    if (game.p !== undefined) body.append(titled("box", "What the judge was given in the first order", words(game.p, missing)));
    else body.append(titled("box", "Question", words(common.p, missing)));
    const pair = make("div", "pair");
    pair.append(titled("box", index.models[model].name, words(game.a, missing)),
      titled("box", baseline ? `${baseline} (baseline)` : "baseline", words(common.a[game.b], missing)));
    if (game.p === undefined || game.a !== null || (common.a[game.b] ?? null) !== null) body.append(pair);
    for (const told of game.g) {
      if (index.judges.length > 1) body.append(make("h4", "", `Judge: ${index.judges[told.j]}`));
      const verdicts = make("div", "pair");
      verdicts.append(verdictBox(told, 0), verdictBox(told, 1));
      body.append(verdicts);
    }
  }

  function item(game) {
    const line = make("li"), details = make("details", "game"), head = make("summary"), kind = outcome(game);
    const common = shared.get(game.u), start = (common?.p ?? game.p ?? "").replace(/<\|[^|]{0,80}\|>/g, "").trim().slice(0, 200).replace(/\s+/g, " ");
    const first = make("span", "first", start || game.u);
    first.dir = "auto";
    head.append(make("span", `verdict ${kind}`, OUTCOMES[kind]), first, make("span", "tag", game.c || "–"));
    details.append(head);
    details.addEventListener("toggle", () => {
      if (!details.open || details.querySelector(".body")) return;
      const body = make("div", "body");
      fill(body, game);
      details.append(body);
    });
    line.append(details);
    return line;
  }

  function showMore() {
    list.append(...found.slice(shown, shown + STEP).map(item));
    shown = Math.min(shown + STEP, found.length);
    more.hidden = shown >= found.length;
    more.textContent = `Show ${Math.min(STEP, found.length - shown)} more`;
    const about = index.models[model], all = about.included < about.questions ? ` (of ${about.questions} judged)` : "";
    count.textContent = `${found.length} of ${games.length} questions in this file${all}; ${shown} shown.`;
  }

  function narrow() {
    if (model < 0) return;
    const wanted = pickOutcome.value, text = search.value.trim().toLowerCase();
    found = games.filter((game) => (wanted === "all" || outcome(game) === wanted) && (text === "" || haystack(game).includes(text)));
    list.replaceChildren();
    shown = 0;
    showMore();
  }

  async function open(wanted) {
    if (wanted === model || !index.models[wanted]) return;
    const mine = ++turn;
    count.textContent = "Unpacking …";
    list.replaceChildren();
    more.hidden = true;
    pickModel.value = String(wanted);
    try {
      shared ??= new Map((await unpack("games-shared")).map((entry) => [entry.u, entry]));
      if (!loaded.has(wanted)) loaded.set(wanted, await unpack(`games-data-${wanted}`));
    } catch (error) {
      model = -1;
      count.textContent = `The games can't be unpacked by this browser (${error.message}). A newer one can.`;
      return;
    }
    if (mine !== turn) return;
    model = wanted;
    games = loaded.get(wanted);
    narrow();
  }

  async function follow() {
    const match = /^#games-(\d+)$/.exec(location.hash);
    if (!match) return;
    await open(Number(match[1]));
    const title = document.getElementById("games-title");
    title.scrollIntoView();
    title.focus({ preventScroll: true });
  }

  viewer.hidden = false;
  document.getElementById("needs-script").hidden = true;
  pickModel.addEventListener("change", () => open(Number(pickModel.value)));
  pickOutcome.addEventListener("change", narrow);
  let timer = 0;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(narrow, 150); });
  more.addEventListener("click", () => {
    const next = list.children.length;
    showMore();
    list.children[next]?.querySelector("summary").focus();
  });
  for (const link of document.querySelectorAll("a.games")) link.addEventListener("click", () => setTimeout(follow));
  addEventListener("hashchange", follow);
  new IntersectionObserver((seen, watcher) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    watcher.disconnect();
    if (model < 0 && turn === 0) open(Number(pickModel.value) || 0);
  }, { rootMargin: "300px" }).observe(viewer);
  follow();
})();
