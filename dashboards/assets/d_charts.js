/* One chart card: series in, a Plotly figure out, and beside it the legend, the current values and a table for who cannot see it. */
vitals.charts = (function () {
  "use strict";
  const v = vitals;

  /** Plotly is loaded when the first chart is; documents of pages with charts ask for it themselves, long before. */
  let loading = null;
  function plotly() {
    loading ??= new Promise((resolve, reject) => {
      if (window.Plotly) { resolve(window.Plotly); return; }
      const early = document.getElementById("plotly");
      const script = early || document.createElement("script");
      script.addEventListener("load", () => resolve(window.Plotly));
      script.addEventListener("error", () => { script.remove(); loading = null; reject(new TypeError("the chart library did not load")); });
      if (early) return;
      script.src = v.meta("vitals-plotly");
      document.head.append(script);
    });
    return loading;
  }

  /* Colours are read from the style sheet once per theme. */
  let palette = null;
  function colours() {
    if (palette) return palette;
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    palette = {
      lines: Array.from({ length: 10 }, (_, i) => read(`--line-${i + 1}`)),
      text: read("--text"), dim: read("--dim"), grid: read("--grid"), surface: read("--surface"), border: read("--border"), accent: read("--accent"),
      critical: read("--critical"), warning: read("--warning"), healthy: read("--healthy"), watch: read("--watch"), solved: read("--solved"), unknown: read("--unknown"), heat: Array.from({ length: 5 }, (_, i) => read(`--heat-${i}`)),
    };
    return palette;
  }
  document.addEventListener("vitals-theme", () => { palette = null; });

  /** Behind more lines than these an envelope cannot be told from the next one's, and costs a trace each. */
  const MOST_ENVELOPES = 5;

  /** Between a label and its axis; and how many letters fit everywhere. */
  const [GAP, SHORT] = [8, 4];

  /** Passed, mixed, failed. */
  const OUTCOMES = ["--healthy", "--dim", "--critical"];

  /** Overlapping bands as one, so that many alerts at once do not hide the curve; the worst of them gives the colour. */
  function joined(bands) {
    const merged = [];
    for (const band of [...bands].sort((a, b) => a.from - b.from)) {
      const last = merged.at(-1);
      if (!last || band.from > last.to) merged.push({ ...band });
      else Object.assign(last, { to: Math.max(last.to, band.to), critical: last.critical || band.critical, own: last.own || band.own });
    }
    return merged;
  }

  const veil = (colour, alpha) => {
    const hex = colour.replace("#", "");
    const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
    return `rgba(${r},${g},${b},${alpha})`;
  };

  /** Running mean over about `span` points that ignores gaps; an exponential weight, corrected for its start. */
  function smoothed(values, span) {
    const keep = 1 - 1 / span;
    let [sum, weight] = [0, 0];
    return values.map((y) => {
      if (y == null) return null;
      sum = keep * sum + (1 - keep) * y;
      weight = keep * weight + (1 - keep);
      return sum / weight;
    });
  }

  /** The rim of what lies between the bounds of a curve's buckets, once around each stretch without a gap: one trace costs half of two. */
  function outline(x, { low, high }, log) {
    const [xs, ys] = [[], []];
    const least = log ? high.reduce((least, y) => (y > 0 && y < least ? y : least), Infinity) : -Infinity;
    for (let from = 0, to; from < low.length; from = to + 1) {
      to = from;
      while (to < low.length && low[to] != null && high[to] > (log ? 0 : -Infinity)) to += 1;
      if (to === from) continue;
      if (xs.length) { xs.push(null); ys.push(null); }
      for (let i = from; i < to; i += 1) { xs.push(x[i]); ys.push(high[i]); }
      for (let i = to - 1; i >= from; i -= 1) { xs.push(x[i]); ys.push(Math.max(low[i], least)); }
    }
    return { x: xs, y: ys };
  }

  /** Which part of an attempt a later one lived again: everything from the first step of any later attempt on. */
  function cut(curve, from) {
    if (from === Infinity) return [curve, null];
    let at = curve.x.findIndex((x) => x >= from);
    if (at < 0) return [curve, null];
    const part = (a, b) => {
      const lived = { x: curve.x.slice(a, b), y: curve.y.slice(a, b), bad: (curve.bad || []).filter(([x]) => (a ? x >= from : x < from)) };
      if (curve.low) Object.assign(lived, { low: curve.low.slice(a, b), high: curve.high.slice(a, b) });
      return lived;
    };
    return [part(0, at), part(Math.max(0, at - 1), curve.x.length)];
  }

  /** From which step on a later attempt lived again what this one did. */
  const laterThan = (number, begins) => Math.min(...begins.filter(([segment]) => segment > number).map(([, first]) => first), Infinity);

  /** A run's curve across its attempts, without what a later one lived again. */
  function lived(attempts, begins) {
    const whole = { x: [], y: [], bad: [] };
    for (const number of Object.keys(attempts).map(Number).sort((a, b) => a - b)) {
      const [own] = cut(attempts[number], laterThan(number, begins));
      for (const field of ["x", "y"]) whole[field] = whole[field].concat(own[field]);
      whole.bad.push(...(own.bad || []));
    }
    return whole;
  }

  /** How far the steps of a curve are apart, mostly. */
  function stride({ x }) {
    const gaps = x.slice(1).map((step, i) => step - x[i]).sort((a, b) => a - b);
    return gaps.length ? Math.max(1, gaps[gaps.length >> 1]) : 1;
  }

  /** The curves of several runs as one: at steps as far apart as those of the coarsest, the mean, smallest and largest of the runs that have a finite
   * value there, and how many those are; nothing where none has one. */
  function pooled(view, parts) {
    const width = 2 ** Math.ceil(Math.log2(Math.max(...parts.map(([, curve]) => stride(curve)))));
    const at = new Map();
    for (const [run, curve] of parts) {
      const own = new Map();
      curve.x.forEach((step, i) => {
        const bucket = Math.floor(step / width) * width;
        if (!own.has(bucket)) own.set(bucket, [0, 0, step]);
        if (curve.y[i] != null) { own.get(bucket)[0] += curve.y[i]; own.get(bucket)[1] += 1; }
      });
      const means = [...own.values()].map(([sum, count]) => (count ? sum / count : null));
      const values = view.smooth > 1 ? smoothed(means, view.smooth) : means;
      [...own].forEach(([bucket, [, , step]], i) => {
        if (!at.has(bucket)) at.set(bucket, { step, all: [] });
        if (values[i] != null) at.get(bucket).all.push([run, values[i], Number(view.toX(run, step))]);
      });
    }
    const pool = { x: [], steps: [], y: [], low: [], high: [], all: [] };
    for (const [, { step, all }] of [...at].sort(([a], [b]) => a - b)) {
      const mean = (place) => all.reduce((sum, each) => sum + each[place] / all.length, 0);
      const ys = all.map(([, y]) => y);
      pool.steps.push(step);
      pool.all.push(all);
      pool.x.push(all.length ? mean(2) : Number(view.toX(parts[0][0], step)));
      pool.y.push(all.length ? mean(1) : null);
      pool.low.push(all.length ? Math.min(...ys) : null);
      pool.high.push(all.length ? Math.max(...ys) : null);
    }
    return pool;
  }

  /** The stretches of a band that have both edges: a fill does not know gaps. */
  function solid(x, low, high) {
    const parts = [];
    let open = null;
    x.forEach((at, i) => {
      if (low[i] == null || high[i] == null) { open = null; return; }
      if (!open) parts.push((open = { x: [], low: [], high: [] }));
      open.x.push(at);
      open.low.push(low[i]);
      open.high.push(high[i]);
    });
    return parts;
  }

  /** The latest value of a series: of its newest attempt, not finite if that is how it ended. */
  function latest(attempts) {
    const newest = Object.keys(attempts || {}).map(Number).sort((a, b) => b - a)[0];
    if (newest == null) return null;
    const curve = attempts[newest];
    const bad = (curve.bad || []).at(-1);
    if (bad && bad[0] === curve.x.at(-1) && curve.y.at(-1) == null) return bad[1];
    return curve.y.at(-1);
  }

  class Chart {
    constructor(card) {
      this.card = card;
      this.spec = JSON.parse(card.dataset.spec);
      this.plot = card.querySelector(".plot");
      this.metrics = this.spec.metrics;
      this.visible = false;
      this.dirty = true;
      this.off = new Set();
      this.margin = { l: 0, r: 0 };
      this.legend();
      this.sheet = v.sheets.foot(this);
      this.size = new ResizeObserver(() => { if (this.bound && this.plot.clientHeight !== this.height) { this.height = this.plot.clientHeight; window.Plotly.Plots.resize(this.plot); } });
      this.size.observe(this.plot);
    }

    get format() {
      return /%$/.test(this.spec.figure.layout.yaxis.tickformat || "") ? v.percent : v.number;
    }

    legend() {
      const node = this.card.querySelector(".legend");
      const many = this.spec.kind !== "heat" && this.spec.figure.data.length > 1;
      node.innerHTML = this.spec.figure.data.map((trace, slot) => many
        ? `<button type="button" data-slot="${slot}" aria-pressed="true" title="Show or hide"><i style="background:var(${this.spec.kind === "stack" ? OUTCOMES[slot] : `--line-${(slot % 10) + 1}`})"></i>${v.escape(trace.name)} <b></b></button>`
        : "<span><b></b></span>").join("");
      node.addEventListener("click", (event) => {
        const button = event.target.closest("[data-slot]");
        if (!button) return;
        const slot = Number(button.dataset.slot);
        this.off.has(slot) ? this.off.delete(slot) : this.off.add(slot);
        button.setAttribute("aria-pressed", String(!this.off.has(slot)));
        this.redraw();
      });
    }

    /** Draws from the view's series; the view also knows the axis, the smoothing, the zoom and the marks. */
    async draw(view) {
      this.view = view;
      this.dirty = false;
      const lib = await plotly();
      if (!this.plot.isConnected) return;
      const figure = this.spec.kind === "heat" ? this.heat(view) : this.lines(view);
      const empty = !figure.data.length;
      this.card.classList.toggle("blank", empty);
      if (empty) return;
      await lib.react(this.plot, figure.data, figure.layout, { displayModeBar: false, responsive: true, showTips: false, doubleClick: false });
      if (!this.bound) this.bind(view);
      await this.fit(lib);
      this.card.dataset.severity = this.ill(view);
      this.values(view);
      if (!this.sheet.hidden) v.sheets.table(this);
    }

    /** Margins that hold the widest label: a clipped one is another number. They grow and stay, so that charts do not jiggle. */
    async fit(lib) {
      const width = (axis) => Math.max(0, ...[...this.plot.querySelectorAll(`.${axis}tick text`)].map((label) => (label.textContent.length > SHORT ? label.getBoundingClientRect().width : 0)));
      const wanted = { l: Math.ceil(width("y")) + GAP, r: this.beside ? Math.ceil(width("y3")) + GAP + 20 : 0 };
      const change = {};
      for (const side of ["l", "r"]) if (wanted[side] > Math.max(this.margin[side], this.plot.layout.margin[side])) change[`margin.${side}`] = this.margin[side] = wanted[side];
      if (Object.keys(change).length) await lib.relayout(this.plot, change);
    }

    redraw() { this.dirty = true; this.view?.queue(this); }

    bind(view) {
      this.bound = true;
      this.plot.on("plotly_relayout", (change) => {
        if (change["xaxis.range[0]"] != null) view.zoomed(change["xaxis.range[0]"], change["xaxis.range[1]"]);
      });
      this.plot.on("plotly_doubleclick", () => view.zoomed(null, null));
      this.plot.on("plotly_click", (event) => { if (event.points.length) view.pick(...this.pointed(event)); });
    }

    /** The step and the run of what was clicked: of all that lies there the nearest to the pointer, of a group its nearest run. */
    pointed({ points, event }) {
      const height = event.clientY - this.plot.getBoundingClientRect().top;
      const away = (point, y) => Math.abs(point.yaxis._offset + point.yaxis.d2p(y) - height);
      const near = points.reduce((best, point) => (away(point, point.y) < away(best, best.y) ? point : best));
      const [run] = near.data.meta?.all?.[near.pointNumber]?.reduce((best, each) => (away(near, each[1]) < away(near, best[1]) ? each : best)) || [near.data.meta?.run];
      return [near.customdata?.step ?? near.customdata ?? near.x, near.customdata?.run ?? run];
    }

    lines(view) {
      const c = colours();
      const data = [];
      const bad = [];
      const zeros = [];
      this.log = this.spec.figure.layout.yaxis.type === "log" && this.decades(view) > 1.3;
      this.beside = this.apart(view);
      const single = this.spec.figure.data.length === 1 && view.runs.length === 1;
      const drawn = new Set();
      this.ends = [];
      for (const [order, line] of view.lines.entries()) {
        for (const template of this.spec.figure.data) {
          const { metric, slot } = template.meta;
          if (this.off.has(slot)) continue;
          const colour = this.spec.kind === "stack" ? [c.healthy, c.dim, c.critical][slot] : c.lines[(view.runs.length > 1 ? order : slot) % c.lines.length];
          const name = view.runs.length > 1 ? line.name : template.name;
          const dashed = view.runs.length > 1 && slot > 0 ? ["solid", "dot", "dash", "dashdot"][slot % 4] : template.meta.dashed ? "dash" : "solid";
          const reject = (curve, who, run) => {
            for (const [step, what] of curve.bad || []) bad.push({ x: view.toX(run, step), step, run, what: `${who}: ${what} at step ${v.integer(step)}` });
            if (this.log) curve.y.forEach((y, i) => { if (y != null && y <= 0) zeros.push({ x: view.toX(run, curve.x[i]), step: curve.x[i], run, what: `${who}: ${v.number(y)}` }); });
          };
          if (line.runs.length > 1 && this.spec.kind === "lines") {
            const parts = line.runs.map((run) => [run, lived(view.curves(run, metric) || {}, view.begins(run))]).filter(([, curve]) => curve.x.length);
            if (!parts.length) continue;
            for (const [run, curve] of parts) reject(curve, view.nameOf(run), run);
            const pool = pooled(view, parts);
            this.ends.push([name, pool.y.at(-1)]);
            data.push(...this.band(view, line, template, pool, name, colour, dashed));
            continue;
          }
          for (const run of line.runs) {
            const attempts = view.curves(run, metric) || (this.spec.kind === "stack" ? this.rest(view, run, metric) : null);
            if (!attempts) continue;
            const numbers = Object.keys(attempts).map(Number).sort((a, b) => a - b);
            this.ends.push([name, latest(attempts)]);
            for (const number of numbers) {
              const [own, relived] = cut(attempts[number], laterThan(number, view.begins(run)));
              const end = JSON.stringify([own.x.at(-1), ...own.y.slice(-3)]);
              const dash = drawn.has(end) && dashed === "solid" ? "dash" : dashed;
              drawn.add(end);
              if (relived) data.push(this.trace(view, run, template, relived, { name: `${name}, attempt ${number + 1}`, line: { color: veil(colour, 0.35), width: 1.2, dash: "dot" } }));
              if (own.x.length) data.push(...this.strokes(view, run, template, own, name, colour, dash, single));
              reject(own, name, run);
              if (relived) reject({ ...relived, y: [] }, name, run);
            }
          }
        }
      }
      const rim = (points, y, marker, name) => ({
        type: "scatter", mode: "markers", yaxis: "y2", x: points.map((p) => p.x), y: points.map(() => y), customdata: points.map(({ step, run }) => ({ step, run })), text: points.map((p) => p.what),
        hovertemplate: "%{text}<extra></extra>", marker, showlegend: false, name,
      });
      if (bad.length) data.push(rim(bad, 0.965, { symbol: "x", size: 7, color: c.critical }, "not finite"));
      if (zeros.length) data.push(rim(zeros, 0.02, { symbol: "circle-open", size: 5, color: c.dim }, "zero or below"));
      return { data, layout: this.layout(view) };
    }

    /** The share that a stack does not log is what the others leave of one. */
    rest(view, run, metric) {
      const others = this.metrics.filter((name) => name !== metric).map((name) => view.curves(run, name));
      if (others.some((attempts) => !attempts)) return null;
      return Object.fromEntries(Object.entries(others[0]).map(([number, curve]) => {
        const known = others.slice(1).map((attempts) => { const c = attempts[number] || { x: [], y: [] }; return new Map(c.x.map((x, i) => [x, c.y[i]])); });
        const left = curve.x.map((x, i) => known.reduce((sum, values) => (sum == null || values.get(x) == null ? null : sum - values.get(x)), curve.y[i] == null ? null : 1 - curve.y[i]));
        return [number, { x: curve.x, y: left }];
      }));
    }

    /** How many powers of ten the positive values span: a logarithmic axis is worth it from about one on. */
    decades(view) {
      let [low, high] = [Infinity, 0];
      for (const run of view.runs) for (const metric of this.metrics) for (const curve of Object.values(view.curves(run, metric) || {})) {
        for (const y of curve.y) if (y > 0) { if (y < low) low = y; if (y > high) high = y; }
      }
      return high > 0 ? Math.log10(high / low) : 0;
    }

    /** A range around the only value of a chart: Plotly would show 5e-4 as a line at the zero of an axis from -1 to 1. */
    around(view) {
      let [low, high] = [Infinity, -Infinity];
      for (const run of view.runs) for (const template of this.spec.figure.data) {
        if (this.off.has(template.meta.slot)) continue;
        for (const curve of Object.values(view.curves(run, template.meta.metric) || {})) for (const y of [...curve.y, ...(curve.low || []), ...(curve.high || [])]) {
          if (y == null) continue;
          if (y < low) low = y;
          if (y > high) high = y;
        }
      }
      const size = Math.max(Math.abs(low), Math.abs(high));
      if (low > high || high - low > 1e-6 * size) return null;
      if (size === 0) return this.spec.figure.layout.yaxis.rangemode === "tozero" ? [0, 1] : [-1, 1];
      const fraction = /%$/.test(this.spec.figure.layout.yaxis.tickformat || "");
      return low > 0 ? [0, fraction && low > 0.5 ? Math.max(1.05 * low, 1) : 2 * low] : [2 * low, 0];
    }

    /** Whether the lines that only stand beside the others would flatten them: then they get the axis on the right. */
    apart(view) {
      const size = (beside) => Math.max(0, ...view.runs.flatMap((run) => this.spec.figure.data.filter((t) => Boolean(t.meta.beside) === beside && !this.off.has(t.meta.slot))
        .flatMap((t) => Object.values(view.curves(run, t.meta.metric) || {}).flatMap((curve) => curve.y.reduce((most, y) => (y != null && Math.abs(y) > most ? Math.abs(y) : most), 0)))));
      const [own, other] = [size(false), size(true)];
      return own > 0 && other > 3 * own;
    }

    trace(view, run, template, curve, more) {
      const { meta, ...plain } = template;
      const y = this.log ? curve.y.map((value) => (value > 0 ? value : null)) : curve.y;
      if (this.beside && meta.beside) plain.yaxis = "y3";
      return { ...plain, connectgaps: Boolean(this.log), x: curve.x.map((step) => view.toX(run, step)), y, customdata: curve.x, meta: { run }, hovertemplate: this.hover(), ...more };
    }

    /** The first line is wide where a dashed one follows it, so that both are seen where they are one. */
    width(view, template, run) {
      if (view.runs.length > 1) return view.lines.some((line) => line.base && line.runs.includes(run)) ? 3 : 1.8;
      return view.runs.length === 1 && template.meta.slot === 0 && this.spec.figure.data.some((t) => t.meta.dashed) ? 3 : 1.8;
    }

    hover() { return `%{y:${this.format === v.percent ? ".1%" : ".4~g"}}`; }

    /** The mean of the runs of a group; behind it the band from the smallest to the largest of them. */
    band(view, line, template, pool, name, colour, dash) {
      const x = view.axis === "time" ? pool.x.map((at) => new Date(at)) : pool.x;
      const positive = (values) => (this.log ? values.map((y) => (y > 0 ? y : null)) : values);
      const floor = this.log ? Math.min(...pool.y.filter((y) => y > 0)) : null;
      const edge = { type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, connectgaps: false, name: `${name}, band` };
      const low = this.log ? pool.low.map((y) => (y == null || y > 0 ? y : floor)) : pool.low;
      const short = this.format === v.percent ? v.percent : v.number;
      const { meta, ...plain } = template;
      return [
        ...solid(x, low, positive(pool.high)).flatMap((part) => [{ ...edge, x: part.x, y: part.low }, { ...edge, x: part.x, y: part.high, fill: "tonexty", fillcolor: veil(colour, 0.18) }]),
        { ...plain, name, x, y: positive(pool.y), customdata: pool.steps, connectgaps: Boolean(this.log), mode: pool.x.length === 1 ? "markers" : "lines", line: { color: colour, width: line.base ? 3 : 1.8, dash },
          marker: { size: 4, color: colour }, meta: { all: pool.all },
          text: pool.all.map((all, i) => (all.length > 1 ? ` (${short(pool.low[i])} to ${short(pool.high[i])}, ${all.length} runs)` : ` (${all.length} run)`)), hovertemplate: `${this.hover()}%{text}` },
      ];
    }

    /** The line itself; behind it the envelope of its buckets or, when smoothed, what was measured. */
    strokes(view, run, template, curve, name, colour, dash, single) {
      const drawn = [];
      const short = curve.x.length < 40 && this.spec.kind !== "stack";
      const look = { name, line: { color: colour, width: this.spec.kind === "stack" ? 0.5 : this.width(view, template, run), dash: this.beside && template.meta.beside ? "dot" : dash }, mode: curve.x.length === 1 ? "markers" : short && dash === "solid" ? "lines+markers" : "lines", marker: { size: 4, color: colour } };
      if (this.spec.kind === "stack") return [this.trace(view, run, template, curve, { ...look, mode: "lines", fillcolor: veil(colour, 0.55), stackgroup: `all${run}` })];
      const x = curve.x.map((step) => view.toX(run, step));
      if (curve.low && (single || (view.smooth < 2 && view.lines.length <= MOST_ENVELOPES))) {
        drawn.push({ yaxis: this.beside && template.meta.beside ? "y3" : "y", type: "scatter", mode: "lines", ...outline(x, curve, this.log), line: { width: 0 }, fill: "toself", fillcolor: veil(colour, single ? 0.2 : 0.12), hoverinfo: "skip", showlegend: false, connectgaps: false });
      }
      if (view.smooth > 1) {
        drawn.push(this.trace(view, run, template, curve, { ...look, mode: "lines", hoverinfo: "skip", hovertemplate: undefined, line: { color: veil(colour, 0.28), width: 1 } }));
        drawn.push(this.trace(view, run, template, { ...curve, y: smoothed(curve.y, view.smooth) }, { ...look, mode: "lines" }));
      } else drawn.push(this.trace(view, run, template, curve, look));
      return drawn;
    }

    layout(view) {
      const c = colours();
      const layout = structuredClone(this.spec.figure.layout);
      Object.assign(layout.xaxis, view.xaxis(), { spikecolor: c.dim, spikedash: "solid" });
      layout.font = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 11, color: c.dim };
      layout.hoverlabel = { bgcolor: c.surface, bordercolor: c.border, font: { color: c.text, size: 12 } };
      layout.datarevision = view.revision;
      layout.margin.l = Math.max(layout.margin.l, this.margin.l);
      if (layout.yaxis.type === "log" && !this.log) { layout.yaxis.type = "linear"; delete layout.yaxis.dtick; }
      const around = this.spec.kind === "lines" && !this.log && !this.beside ? this.around(view) : null;
      if (around) Object.assign(layout.yaxis, { autorange: false, range: around });
      if (this.beside) {
        layout.yaxis3.visible = true;
        layout.margin.r = Math.max(40, this.margin.r);
        layout.yaxis3.title = { text: "auxiliary and total", font: { size: 10 }, standoff: 4 };
      }
      this.card.querySelectorAll(".legend [data-slot]").forEach((button, slot) => button.classList.toggle("dashes", Boolean(this.spec.figure.data[slot].meta.dashed || (this.beside && this.spec.figure.data[slot].meta.beside))));
      const { shapes, annotations } = this.marks(view, c);
      layout.shapes = shapes;
      layout.annotations = annotations;
      return layout;
    }

    /** Bands from the onset of an alert to its end on the charts it speaks of, a line where it was raised on all others; limits; events. */
    marks(view, c) {
      const shapes = [];
      const annotations = [];
      const bands = [];
      if (view.runs.length > 1) return { shapes, annotations };
      const run = view.runs[0];
      const x = (step) => view.toX(run, step);
      const tall = { xref: "x", yref: "paper", y0: 0, y1: 1, layer: "below" };
      const normal = this.normal(view);
      if (normal) shapes.push({ type: "rect", xref: "paper", x0: 0, x1: 1, yref: "y", y0: normal.low, y1: normal.high, layer: "below", fillcolor: veil(c.healthy, 0.13), line: { width: 0 } });
      for (const mark of view.marks) {
        if (mark.kind === "event") {
          if (mark.end > mark.step) shapes.push({ type: "rect", ...tall, x0: x(mark.step), x1: x(mark.end), fillcolor: veil(c.dim, 0.16), line: { width: 0 } });
          else shapes.push({ type: "line", ...tall, x0: x(mark.step), x1: x(mark.step), line: { color: veil(c.dim, 0.7), width: 1, dash: "dot" } });
          continue;
        }
        const colour = c[mark.severity];
        const own = this.metrics.includes(mark.metric);
        if (own || mark.moved.some((name) => this.metrics.includes(name))) {
          bands.push({ from: mark.onset, to: mark.end ?? Math.max(view.lastStep, mark.step), critical: mark.severity === "critical", own });
        }
        if (own || mark === view.first) {
          shapes.push({ type: "line", ...tall, x0: x(mark.step), x1: x(mark.step), line: { color: veil(colour, own ? 0.95 : 0.45), width: own ? 1.5 : 1, dash: own ? "solid" : "dash" } });
        }
        if (own && mark.limit != null && this.metrics.length <= 3 && !this.beside && !(this.log && mark.limit <= 0)) {
          shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: mark.limit, y1: mark.limit, layer: "below", line: { color: veil(colour, 0.7), width: 1, dash: "dash" } });
        }
      }
      const owned = bands.filter((band) => band.own);
      for (const band of joined(bands.filter((band) => band.own || !owned.some((own) => own.from <= band.to && own.to >= band.from)))) {
        const colour = c[band.critical ? "critical" : "warning"];
        shapes.push({ type: "rect", ...tall, x0: x(band.from), x1: x(band.to), fillcolor: veil(colour, band.own ? 0.14 : 0.07), line: { width: 0 } });
      }
      if (view.picked != null) shapes.push({ type: "line", ...tall, layer: "above", x0: x(view.picked), x1: x(view.picked), line: { color: c.accent, width: 1.5 } });
      return { shapes, annotations };
    }

    /** The severity of the worst open alert about a metric of this chart; empty without one. */
    ill(view) {
      const open = view.marks.filter((mark) => mark.kind === "alert" && mark.end == null && this.metrics.includes(mark.metric)).map((mark) => mark.severity);
      return open.includes("critical") ? "critical" : open.includes("warning") ? "warning" : "";
    }

    /** Where the first line lay in healthy runs of this kind, where that is known and the axis has a place for it. */
    normal(view) {
      const found = view.normal && view.normal[this.metrics[0]];
      return found && this.spec.kind === "lines" && !(this.log && found.low <= 0) ? found : null;
    }

    heat(view) {
      const map = view.heat(this.metrics[0]);
      if (!map || !map.x.length || !map.counts[0].length) return { data: [], layout: {} };
      const c = colours();
      const run = view.runs[0];
      const bins = map.counts[0].length;
      const edge = (i) => (i <= 0 ? 0 : map.edges[Math.min(i, map.edges.length) - 1]);
      const share = map.counts.map((column) => { const total = column.reduce((a, b) => a + b, 0) || 1; return column.map((n) => n / total); });
      const z = Array.from({ length: bins }, (_, bin) => share.map((column) => (column[bin] ? Math.sqrt(column[bin]) : null)));
      const names = Array.from({ length: bins }, (_, bin) => `${v.number(edge(map.first_bin + bin))} to ${v.number(edge(map.first_bin + bin + 1))}`);
      const text = Array.from({ length: bins }, (_, bin) => share.map((column) => `${names[bin]} ${v.escape(this.spec.unit)}: ${v.percent(column[bin])}`));
      const every = Math.max(1, Math.round(bins / 5));
      const ticks = Array.from({ length: bins + 1 }, (_, i) => i).filter((i) => (i + map.first_bin) % every === 0);
      const layout = this.layout(view);
      layout.yaxis = { ...layout.yaxis, type: "linear", range: [-0.5, bins - 0.5], tickmode: "array", tickvals: ticks.map((i) => i - 0.5), ticktext: ticks.map((i) => v.brief(edge(map.first_bin + i))), showgrid: false };
      const data = [{ ...this.spec.figure.data[0], meta: undefined, x: map.x.map((step) => view.toX(run, step + map.width / 2)), y: Array.from({ length: bins }, (_, i) => i), z, text,
        customdata: Array.from({ length: bins }, () => map.x), hovertemplate: "%{text}<extra></extra>", colorscale: c.heat.map((colour, i) => [i / (c.heat.length - 1), colour]), zmin: 0 }];
      return { data, layout };
    }

    /** The current value of every line, in the legend and in the words a screen reader gets. */
    values(view) {
      const said = [];
      const nodes = this.card.querySelectorAll(".legend b");
      if (view.runs.length > 1) { this.plot.setAttribute("aria-label", `${this.spec.title}: ${(this.ends || []).map(([name, end]) => `${name} ${end == null ? "no value" : this.format(end)}`).join(", ")}`); return; }
      this.spec.figure.data.forEach((template, slot) => {
        const value = this.spec.kind === "heat" ? null : latest(view.curves(view.runs[0], template.meta.metric) || (this.spec.kind === "stack" ? this.rest(view, view.runs[0], template.meta.metric) : null));
        const text = value == null ? "" : this.format(value);
        if (nodes[slot] && nodes[slot].textContent !== text) nodes[slot].textContent = text;
        if (nodes[slot]) nodes[slot].classList.toggle("bad", typeof value === "string");
        if (text) said.push(`${template.name} ${text}`);
      });
      const normal = this.normal(view);
      const short = this.format === v.percent ? v.percent : v.brief;
      const range = normal ? `${short(normal.low)} to ${short(normal.high)}` : "";
      const node = this.card.querySelector(".normal");
      if (node && node.dataset.range !== range) {
        node.dataset.range = range;
        node.textContent = range ? `healthy ${range}` : "";
        node.title = range ? `98 of 100 rows of ${normal.runs} healthy ${normal.runs === 1 ? "run" : "runs"} of this project, algorithm and model lay here` : "";
      }
      if (range) said.push(`normal in healthy runs ${range}`);
      const label = `${this.spec.title}${said.length ? `: ${said.join(", ")}` : ""}${view.lastStep != null ? `, to step ${v.integer(view.lastStep)}` : ""}`;
      if (this.plot.getAttribute("aria-label") !== label) this.plot.setAttribute("aria-label", label);
    }

    purge() { this.size.disconnect(); if (this.bound && window.Plotly) window.Plotly.purge(this.plot); }
  }

  return { Chart, plotly, latest, smoothed, cut, lived, pooled, colours };
})();
