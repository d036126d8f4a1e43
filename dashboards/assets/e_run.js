/* The run page: one request for everything on it, only charts that were seen, only those in view are drawn, one per animation frame. */
(function () {
  "use strict";
  const v = vitals;
  const HEAT_EVERY_MS = 8000;
  const MARGIN = 120;
  const FRAME_MS = 12;

  /** Whether a card is in view or about to be: the first request asks for these, before the observer has looked. */
  function near(card) {
    const { top, bottom } = card.getBoundingClientRect();
    return bottom > -MARGIN && top < innerHeight + MARGIN;
  }

  class Board extends v.Viewport {
    constructor(root) {
      super(root);
      this.runs = root.dataset.runs ? JSON.parse(root.dataset.runs) : [root.dataset.run];
      this.names = JSON.parse(root.dataset.names || "{}");
      this.lines = (root.dataset.lines ? JSON.parse(root.dataset.lines) : [{ runs: this.runs }]).map((line) => (line.base ? { ...line, name: `${line.name}, baseline` } : line));
      this.known = new Set(JSON.parse(root.dataset.metrics));
      const begins = JSON.parse(root.dataset.begins);
      this.tracks = new Map(this.runs.map((uid) => [uid, new v.tracks.Track(uid, Array.isArray(begins) ? begins : begins[uid])]));
      this.have = new Set();
      this.cursor = "";
      this.heats = new Map();
      this.revision = 0;
      this.smooth = Number(v.address.get("smooth")) || 0;
      this.picked = v.address.get("step") === "" ? null : Number(v.address.get("step"));
      this.due = new Set();
      this.readMarks();
      this.charts = [...root.querySelectorAll(".chart")].map((card) => new v.charts.Chart(card));
      this.byPlot = new Map(this.charts.map((chart) => [chart.card, chart]));
      for (const chart of this.charts) chart.visible = chart.wanted = near(chart.card);
      this.watch = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: `${MARGIN}px` });
      for (const chart of this.charts) this.watch.observe(chart.card);
      this.attributes = new MutationObserver(() => { if (this.readMarks()) this.redrawAll(); });
      this.attributes.observe(root.querySelector("#marks"), { attributes: true });
      this.listen();
      if (root.dataset.steps !== "[]") this.readStep(this.picked);
      v.charts.plotly().catch(() => {});
    }

    listen() {
      this.controls = new AbortController();
      const on = (target, kind, act) => target.addEventListener(kind, act, { signal: this.controls.signal });
      const smooth = this.root.querySelector("#smooth");
      smooth.value = String(this.smooth);
      on(smooth, "change", () => {
        this.smooth = Number(smooth.value);
        v.address.set({ smooth: this.smooth || "" });
        this.redrawAll();
      });
      this.wire(on);
      this.findField(on);
      on(this.root, "click", (event) => {
        const button = event.target.closest("[data-pick]");
        if (button && button.dataset.pick !== "") this.readStep(Number(button.dataset.pick), true);
        if (event.target.closest("[data-unpick]")) this.unpick();
        else if (event.target.closest("#pick a")) this.bar(false);
      });
      on(document, "vitals-theme", () => this.redrawAll());
    }

    /** A field that leaves only the charts whose title, metrics or part of the run hold its words. */
    findField(on) {
      const place = this.root.querySelector("#find");
      if (!place) return;
      place.innerHTML = `<label class="field"><span class="glyph glyph-search" aria-hidden="true"></span><span class="hidden">Find a chart</span>
        <input id="chart-search" type="search" placeholder="Find a chart" autocomplete="off" spellcheck="false" value="${v.escape(v.address.get("chart"))}"></label><span class="dim" role="status"></span>`;
      const field = place.querySelector("input");
      on(field, "input", () => { v.address.set({ chart: field.value.trim() }); this.find(field.value); });
      on(field, "keydown", (event) => { if (event.key === "Escape") field.blur(); });
      if (field.value) this.find(field.value);
    }

    find(text) {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      for (const { card, spec } of this.charts) {
        const told = [spec.title, ...spec.metrics, card.closest("section")?.getAttribute("aria-label")].join(" ").toLowerCase();
        card.hidden = !words.every((word) => told.includes(word));
      }
      for (const section of this.root.querySelectorAll("section[id^=organ-]")) section.hidden = !section.querySelector(".chart:not([hidden])");
      const shown = this.charts.filter(({ card }) => !card.hidden).length;
      this.root.querySelector("#find [role=status]").textContent = words.length ? `${shown} of ${this.charts.length}` : "";
    }

    stop() {
      this.watch.disconnect();
      this.attributes.disconnect();
      this.controls.abort();
      for (const chart of this.charts) chart.purge();
      this.stopped = true;
    }

    readMarks() {
      const text = this.root.querySelector("#marks").dataset.marks || "[]";
      if (text === this.marksText) return false;
      this.marksText = text;
      this.marks = JSON.parse(text);
      this.first = this.marks.filter((mark) => mark.severity === "critical").sort((a, b) => a.step - b.step)[0];
      this.badge();
      return true;
    }

    /** The severity of each part, on the links that jump to it. */
    badge() {
      for (const link of this.root.querySelectorAll(".jump [data-organ]")) {
        const open = this.marks.filter((mark) => mark.kind === "alert" && mark.organ === link.dataset.organ && mark.end == null).map((mark) => mark.severity);
        link.dataset.severity = open.includes("critical") ? "critical" : open.includes("warning") ? "warning" : "";
      }
    }

    seen(entries) {
      let fresh = false;
      for (const entry of entries) {
        const chart = this.byPlot.get(entry.target);
        chart.visible = entry.isIntersecting;
        if (!chart.visible) continue;
        if (!chart.wanted) { chart.wanted = true; fresh = true; }
        if (chart.dirty) this.queue(chart);
      }
      if (fresh) v.poll();
      if (this.range) this.refine();
    }

    async poll() {
      const asked = this.charts.filter((chart) => chart.wanted && chart.spec.kind !== "heat");
      const wanted = asked.flatMap((chart) => chart.metrics);
      if (this.axis === "tokens") wanted.push("progress.tokens");
      const metrics = [...new Set(wanted)];
      const fresh = metrics.filter((name) => !this.have.has(name));
      this.readNormal().catch(() => { this.normal = null; });
      const answer = await v.api("live", { run: this.runs.join(","), metrics: metrics.join(","), new: this.cursor ? fresh.join(",") : "", since: this.cursor });
      if (this.stopped) return answer;
      this.cursor = answer.cursor;
      for (const name of metrics) this.have.add(name);
      for (const chart of asked) chart.asked = true;
      const changed = new Set(fresh);
      const before = this.lastStep;
      let grown = false;
      for (const told of answer.runs) {
        if (told.reset) metrics.forEach((name) => changed.add(name));
        grown = this.tracks.get(told.run).take(told, fresh, changed) || grown;
        if (this.runs.length === 1 && told.held.some((name) => !this.known.has(name))) this.reload();
      }
      this.touch(changed, grown);
      this.went(before, grown);
      if (this.runs.length === 1) this.head(answer.runs[0]);
      await this.heatMaps();
      return answer;
    }

    /** Where the curves of healthy runs of this kind lay, read once. */
    async readNormal() {
      if (this.runs.length > 1 || this.normal || !this.charts.length) return;
      this.normal = {};
      this.normal = await v.api(`runs/${encodeURIComponent(this.runs[0])}/normal`);
      if (this.revision && Object.keys(this.normal).length) this.redrawAll();
    }

    /** Draws the charts whose series changed, and those with an open band, which reaches to the newest step. */
    touch(changed, grown) {
      this.revision += 1;
      for (const chart of this.charts) {
        const open = grown && this.marks.some((mark) => mark.kind === "alert" && mark.end == null && chart.metrics.includes(mark.metric));
        if (!open && !chart.metrics.some((name) => changed.has(name))) continue;
        chart.dirty = true;
        if (chart.visible) this.queue(chart);
      }
    }

    /** A metric that the page has no card for: Dash draws the page again. */
    reload() {
      if (this.reloaded) return;
      this.reloaded = true;
      v.tellDash("redraw", Date.now());
    }

    head(told) {
      const step = this.root.querySelector("#head-step");
      if (step && told.step != null) step.textContent = v.integer(told.step);
      const seen = this.root.querySelector("#head-seen time");
      const iso = new Date(told.seen * 1000).toISOString();
      if (seen && seen.getAttribute("datetime") !== iso) seen.setAttribute("datetime", iso);
      const state = this.root.querySelector("#head-state");
      if (state && !state.classList.contains(`state-${told.state}`)) {
        state.className = `state state-${told.state}`;
        state.textContent = told.state.charAt(0).toUpperCase() + told.state.slice(1);
      }
      const stamp = `${told.judged} ${told.severity}`;
      if (this.stamp !== undefined && this.stamp !== stamp) v.tellDash("stamp", stamp);
      this.stamp = stamp;
    }

    async heatMaps() {
      for (const chart of this.charts.filter((each) => each.spec.kind === "heat" && each.visible)) {
        const name = chart.metrics[0];
        const had = this.heats.get(name);
        const key = JSON.stringify([this.range, this.range ? 0 : this.lastStep]);
        if (had && (had.key === key || ((!this.range || this.newest) && Date.now() - had.at < HEAT_EVERY_MS))) continue;
        const [first, last] = this.range || [];
        const map = await v.api(`runs/${encodeURIComponent(this.runs[0])}/hist`, { metric: name, first, last });
        this.heats.set(name, { key, at: Date.now(), map });
        chart.dirty = true;
        this.queue(chart);
      }
    }

    /* What a chart asks of its view. */
    get lastStep() { return Math.max(...[...this.tracks.values()].map((track) => track.step ?? 0)); }
    begins(run) { return this.tracks.get(run).segments; }
    heat(metric) { return this.heats.get(metric)?.map; }
    nameOf(run) { return this.names[run] || run; }

    /** Reads the samples of a step; a pick by hand also marks the step in every chart and in the address. */
    readStep(step, stay) {
      if (!this.root.querySelector("#samples")) return;
      const wanted = step ?? JSON.parse(this.root.dataset.step || "null");
      v.tellDash("picked", { step: wanted, width: this.tracks.get(this.runs[0]).width, at: Date.now() });
      if (step == null) return;
      this.picked = step;
      v.address.set({ step });
      if (stay) this.redrawAll();
    }

    /** A click on a curve: a bar at the foot of the window says what happened there and leads to it; among several runs it leads to its run. */
    pick(step, run) {
      if (step == null) return;
      if (this.runs.length > 1) {
        if (run) v.go(`${v.base}run/${encodeURIComponent(run)}?step=${Math.round(step)}`);
        return;
      }
      this.readStep(Math.round(step), true);
      this.bar(true);
    }

    bar(shown) {
      const bar = this.root.querySelector("#pick");
      if (bar) bar.hidden = !shown;
    }

    unpick() {
      this.picked = null;
      v.address.set({ step: "" });
      this.bar(false);
      this.redrawAll();
    }

    redrawAll() {
      this.revision += 1;
      for (const chart of this.charts) {
        chart.dirty = true;
        if (chart.visible) this.queue(chart);
      }
    }

    queue(chart) {
      if (!chart.asked && chart.spec.kind !== "heat") return;
      this.due.add(chart);
      if (this.drawing) return;
      this.drawing = true;
      requestAnimationFrame(() => this.frame());
    }

    /** Draws a chart, and further ones while they cost a frame little. */
    async frame() {
      const began = performance.now();
      for (const chart of this.due) {
        this.due.delete(chart);
        if (chart.visible && !this.stopped) await chart.draw(this).catch((error) => { if (!(error instanceof TypeError)) console.error(error); });
        if (performance.now() - began > FRAME_MS) break;
      }
      if (this.due.size && !this.stopped) requestAnimationFrame(() => this.frame());
      else this.drawing = false;
    }
  }

  v.Board = Board;
  v.page("run", (root) => { v.runActs(root); return new Board(root); });
  v.page("compare", (root) => new Board(root));

  /** A page whose data-stamp is what it was made from, and whose data-hears names the store that makes Dash read it again. */
  const listener = (root) => ({
    pulsed(told) {
      if (root.dataset.stamp === told.stamp) return;
      root.dataset.stamp = told.stamp;
      v.tellDash(root.dataset.hears, told.stamp);
    },
  });
  for (const name of ["alerts", "deliveries"]) v.page(name, listener);
})();
