/* The run page: one request for everything on it, only charts that were seen, only those in view are drawn, one per animation frame. */
(function () {
  "use strict";
  const v = vitals;
  const HEAT_EVERY_MS = 8000;
  const REFINE_EVERY_MS = 6000;
  const CLOCKED = ["time", "elapsed"];

  /** What is known of one run on the page. */
  class Track {
    constructor(uid, begins) {
      this.uid = uid;
      this.segments = begins || [];
      this.series = {};
      this.step = null;
      this.width = 1;
      this.clock = null;
    }

    get first() { return Math.min(...this.segments.map(([, first]) => first), this.step ?? 0); }

    /** Pairs of step and place on the axis; none where it is the step itself or not known yet. */
    pairs(axis) {
      if (CLOCKED.includes(axis)) return this.clock || [];
      if (axis !== "tokens") return [];
      const attempts = this.series["progress.tokens"] || {};
      const curve = attempts[Object.keys(attempts).sort((a, b) => b - a)[0]];
      return curve ? curve.x.map((x, i) => [x, curve.y[i]]).filter(([, y]) => y != null) : [];
    }

    /** Takes an answer in; says whether the run went on, and adds the metrics that changed to `changed`. */
    take(told, fresh, changed) {
      const grown = this.step !== told.step;
      this.step = told.step;
      this.width = told.width;
      if (told.reset) this.series = {};
      for (const [name, attempts] of Object.entries(told.series)) {
        changed.add(name);
        const mine = (this.series[name] ??= {});
        for (const [number, curve] of Object.entries(attempts)) {
          mine[number] = told.reset || fresh.includes(name) || !mine[number] ? curve : merged(mine[number], curve);
          if (!this.segments.some(([segment]) => String(segment) === number)) this.segments.push([Number(number), curve.x[0]]);
        }
      }
      if (this.clock && grown && told.step != null) this.clock.push([told.step, told.seen]);
      return grown;
    }
  }

  class Board {
    constructor(root) {
      this.root = root;
      this.runs = root.dataset.runs ? JSON.parse(root.dataset.runs) : [root.dataset.run];
      this.names = JSON.parse(root.dataset.names || "{}");
      this.known = new Set(JSON.parse(root.dataset.metrics));
      const begins = JSON.parse(root.dataset.begins);
      this.tracks = new Map(this.runs.map((uid) => [uid, new Track(uid, Array.isArray(begins) ? begins : begins[uid])]));
      this.have = new Set();
      this.cursor = "";
      this.heats = new Map();
      this.revision = 0;
      this.axis = v.address.get("axis") || "step";
      this.smooth = Number(v.address.get("smooth")) || 0;
      this.range = null;
      this.fine = {};
      this.picked = v.address.get("step") === "" ? null : Number(v.address.get("step"));
      this.due = new Set();
      this.readMarks();
      this.charts = [...root.querySelectorAll(".chart")].map((card) => new v.charts.Chart(card));
      this.byPlot = new Map(this.charts.map((chart) => [chart.card, chart]));
      this.watch = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "120px" });
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
      for (const [id, key] of [["axis", "axis"], ["smooth", "smooth"]]) {
        const field = this.root.querySelector(`#${id}`);
        field.value = String(this[key]);
        on(field, "change", () => {
          this[key] = key === "smooth" ? Number(field.value) : field.value;
          v.address.set({ [key]: field.value === "step" || field.value === "0" ? "" : field.value });
          if (key === "axis") [this.wish, this.range, this.shown] = [this.range, null, null];
          this.needAxis().then(() => this.grant() || this.redrawAll());
        });
      }
      on(this.root.querySelector("#unzoom"), "click", () => this.zoomed(null, null));
      const newest = this.root.querySelector("#newest");
      if (newest) {
        newest.value = v.address.get("newest");
        this.newest = Number(newest.value) || 0;
        on(newest, "change", () => {
          this.zoomed(null, null);
          this.newest = Number(newest.value) || 0;
          v.address.set({ newest: newest.value });
          this.follow();
        });
      }
      this.findField(on);
      on(this.root, "click", (event) => {
        const button = event.target.closest("[data-pick]");
        if (button && button.dataset.pick !== "") this.readStep(Number(button.dataset.pick), true);
        if (event.target.closest("[data-unpick]")) this.unpick();
        else if (event.target.closest("#pick a")) this.bar(false);
      });
      on(document, "vitals-theme", () => this.redrawAll());
      const zoom = v.address.get("zoom").split("-").map(Number);
      if (zoom.length === 2 && zoom[0] < zoom[1]) this.wish = zoom;
      this.needAxis().then(() => this.grant());
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
      this.grant();
      if (grown) this.follow();
      const follows = this.range && (!before || (grown && this.range[1] >= before && Date.now() - this.refined > REFINE_EVERY_MS));
      if (follows) this.refine(true);
      if (this.runs.length === 1) this.head(answer.runs[0]);
      await this.heatMaps();
      await this.readNormal();
      return answer;
    }

    /** Where the curves of healthy runs of this kind lay, read once. */
    async readNormal() {
      if (this.runs.length > 1 || this.normal || !this.charts.length) return;
      this.normal = {};
      this.normal = await v.api(`runs/${encodeURIComponent(this.runs[0])}/normal`);
      if (Object.keys(this.normal).length) this.redrawAll();
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
        if (had && (had.key === key || (!this.range && Date.now() - had.at < HEAT_EVERY_MS))) continue;
        const [first, last] = this.range || [];
        const map = await v.api(`runs/${encodeURIComponent(this.runs[0])}/hist`, { metric: name, first, last });
        this.heats.set(name, { key, at: Date.now(), map });
        chart.dirty = true;
        this.queue(chart);
      }
    }

    /* What a chart asks of its view. */
    get lastStep() { return Math.max(...[...this.tracks.values()].map((track) => track.step ?? 0)); }
    curves(run, metric) { return this.fine[run]?.[metric] || this.tracks.get(run).series[metric]; }
    begins(run) { return this.tracks.get(run).segments; }
    heat(metric) { return this.heats.get(metric)?.map; }
    nameOf(run) { return this.names[run] || run; }

    toX(run, step) {
      const pairs = this.tracks.get(run).pairs(this.axis);
      const at = interpolate(pairs, step);
      if (!pairs.length || this.axis === "tokens") return at;
      return this.axis === "time" ? new Date(at * 1000) : (at - pairs[0][1]) / 3600;
    }

    /** The step at a place on the axis; Plotly names times as local ones, without a zone. */
    toStep(run, x) {
      const pairs = this.tracks.get(run).pairs(this.axis);
      let at = Number(x);
      if (this.axis === "time" && pairs.length) at = new Date(typeof x === "string" ? x.replace(" ", "T") : x).getTime() / 1000;
      else if (this.axis === "elapsed" && pairs.length) at = x * 3600 + pairs[0][1];
      return interpolate(pairs.map(([step, place]) => [place, step]), at);
    }

    async needAxis() {
      if (CLOCKED.includes(this.axis)) {
        const blank = [...this.tracks.values()].filter((track) => !track.clock);
        await Promise.all(blank.map(async (track) => { track.clock = await v.api(`runs/${encodeURIComponent(track.uid)}/clock`); }));
      }
      if (this.axis === "tokens" && !this.known.has("progress.tokens")) {
        v.toast("progress.tokens was not logged; steps are shown.");
        this.axis = "step";
        this.root.querySelector("#axis").value = "step";
      } else if (this.axis === "tokens" && !this.have.has("progress.tokens")) v.poll();
    }

    xaxis() {
      const titles = { tokens: "tokens", elapsed: "hours" };
      const axis = { type: this.axis === "time" ? "date" : "linear", autorange: !this.shown };
      if (titles[this.axis]) axis.title = { text: titles[this.axis], font: { size: 10 }, standoff: 2 };
      if (this.axis === "elapsed") axis.hoverformat = ".2f";
      if (this.shown) axis.range = this.shown;
      if (this.axis !== "step") return axis;
      const last = this.lastStep;
      axis.tickformat = last > 9999 ? "~s" : ",d";
      if (!this.shown && last) {
        const first = Math.min(...[...this.tracks.values()].map((track) => track.first));
        Object.assign(axis, { autorange: false, range: [first, last + Math.max(1, (last - first) * 0.01)] });
      }
      return axis;
    }

    /** All charts show the same part of the run, given in places on the axis; a part of a long run is read again at its own resolution. */
    zoom(from, to) {
      if (from == null && !this.shown) return;
      this.shown = from == null ? null : [from, to];
      this.fine = {};
      this.asked = {};
      this.epoch = (this.epoch || 0) + 1;
      this.range = from == null ? null : this.stepsOf(this.runs[0], from, to);
      this.root.querySelector("#unzoom").hidden = from == null;
      this.redrawAll();
      if (this.range) this.refine();
      else v.poll();
    }

    /** Keeps the newest steps in view as the run goes on, where that was chosen. */
    follow() {
      if (!this.newest || !this.lastStep) return;
      const range = [Math.max(0, this.lastStep - this.newest), this.lastStep];
      if (!this.range) { this.wish = range; this.grant(); return; }
      this.range = range;
      this.shown = range.map((step) => this.toX(this.runs[0], step));
      if (Date.now() - this.refined > REFINE_EVERY_MS) this.refine(true);
      this.redrawAll();
    }

    /** A zoom by hand is kept in the address, as steps of the first run; it ends the following of the newest. */
    zoomed(from, to) {
      this.zoom(from, to);
      this.newest = 0;
      const field = this.root.querySelector("#newest");
      if (field && from != null) field.value = "";
      v.address.set({ newest: "" });
      v.address.set({ zoom: this.range ? this.range.join("-") : "" });
    }

    /** Shows the steps that were wished for, once it is known where they are on the axis. */
    grant() {
      if (!this.wish || (this.axis !== "step" && !this.tracks.get(this.runs[0]).pairs(this.axis).length)) return false;
      this.zoom(...this.wish.map((step) => this.toX(this.runs[0], step)));
      this.wish = null;
      return true;
    }

    stepsOf(run, from, to) { return [Math.max(0, Math.floor(this.toStep(run, from))), Math.ceil(this.toStep(run, to))]; }

    /** Reads what the charts in view show in full; `again` also what was read before. */
    async refine(again) {
      this.refined = Date.now();
      const epoch = this.epoch;
      const names = [...new Set(this.charts.filter((chart) => chart.visible && chart.spec.kind !== "heat").flatMap((chart) => chart.metrics))];
      const coarse = [...this.tracks.values()].filter((track) => track.width > 1);
      const read = await Promise.all(coarse.map(async (track) => {
        const asked = (this.asked[track.uid] ??= new Set());
        const metrics = names.filter((name) => again || !asked.has(name));
        if (!metrics.length) return false;
        metrics.forEach((name) => asked.add(name));
        const [first, last] = this.stepsOf(track.uid, ...this.shown);
        const pad = Math.ceil((last - first) * 0.1);
        const found = await v.api(`runs/${encodeURIComponent(track.uid)}/series`, { metrics: metrics.join(","), first: Math.max(0, first - pad), last: last + pad });
        if (this.epoch === epoch) this.fine[track.uid] = { ...this.fine[track.uid], ...found.series };
        return true;
      }));
      if (this.epoch !== epoch || !read.some(Boolean)) return;
      await this.heatMaps();
      this.redrawAll();
    }

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

    /** A click on a curve: a bar at the foot of the window says what happened there and leads to it. */
    pick(step) {
      if (step == null || this.runs.length > 1) return;
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

    async frame() {
      const chart = this.due.values().next().value;
      if (chart) {
        this.due.delete(chart);
        if (chart.visible && !this.stopped) await chart.draw(this).catch((error) => { if (!(error instanceof TypeError)) console.error(error); });
      }
      if (this.due.size && !this.stopped) requestAnimationFrame(() => this.frame());
      else this.drawing = false;
    }
  }

  /** The value at `step` of sorted pairs, on the line through its neighbours. */
  function interpolate(pairs, step) {
    if (!pairs.length) return step;
    let [low, high] = [0, pairs.length - 1];
    while (high - low > 1) { const mid = (low + high) >> 1; pairs[mid][0] <= step ? (low = mid) : (high = mid); }
    const [[x0, y0], [x1, y1]] = [pairs[low], pairs[high]];
    return x1 === x0 ? y0 : y0 + ((y1 - y0) * (step - x0)) / (x1 - x0);
  }

  /** A curve with the points of another put in; points of the same step are replaced. */
  function merged(old, more) {
    const fields = ["y", ...(more.low || old.low ? ["low", "high"] : [])];
    const out = { x: old.x.slice() };
    for (const field of fields) out[field] = (old[field] || old.y).slice();
    more.x.forEach((x, i) => {
      let at = out.x.length;
      while (at > 0 && out.x[at - 1] >= x) at -= 1;
      const replace = out.x[at] === x ? 1 : 0;
      out.x.splice(at, replace, x);
      for (const field of fields) out[field].splice(at, replace, (more[field] || more.y)[i]);
    });
    const fresh = new Set(more.x);
    const bad = [...(old.bad || []).filter(([x]) => !fresh.has(x)), ...(more.bad || [])].sort((a, b) => a[0] - b[0]);
    if (bad.length) out.bad = bad;
    return out;
  }

  v.merged = merged;
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
