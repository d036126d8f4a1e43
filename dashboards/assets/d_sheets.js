/* What stands behind a chart: the same numbers as a table, a picture to keep, and every row as a file. */
vitals.sheets = (function () {
  "use strict";
  const v = vitals;

  /** In the head: the same numbers as a table, and the chart as a file. Returns the place of the table. */
  function foot(chart) {
    const title = v.escape(chart.spec.title);
    const tools = document.createElement("span");
    tools.className = "card-tools";
    tools.innerHTML = `<button type="button" class="quiet to-table" title="Table" aria-label="${title} as a table" aria-expanded="false"><span class="glyph glyph-table" aria-hidden="true"></span></button>
      <details class="menu"><summary class="quiet" title="Save" aria-label="Save ${title}"><span class="glyph glyph-save" aria-hidden="true"></span></summary><div></div></details>`;
    const sheet = chart.card.querySelector(".card-foot");
    const button = tools.querySelector("button");
    button.addEventListener("click", () => {
      sheet.hidden = !sheet.hidden;
      button.setAttribute("aria-expanded", String(!sheet.hidden));
      if (!sheet.hidden) table(chart);
    });
    const menu = tools.querySelector(".menu");
    menu.addEventListener("toggle", () => { if (menu.open) fill(chart, menu.lastElementChild); });
    menu.addEventListener("click", (event) => {
      if (event.target.closest("[data-png]")) png(chart);
      if (event.target.closest("div")) menu.open = false;
    });
    chart.card.querySelector(".legend").before(tools);
    return sheet;
  }

  /** A picture of what is drawn, and every row of its metrics. */
  function fill(chart, place) {
    const runs = chart.view ? chart.view.runs : [];
    const file = (run) => `/api/v1/runs/${encodeURIComponent(run)}/export?metrics=${encodeURIComponent(chart.metrics.join(","))}`;
    const rows = chart.spec.kind === "heat" ? [] : runs.map((run) => `<a download href="${v.escape(file(run))}">CSV${runs.length > 1 ? ` of ${v.escape(chart.view.nameOf(run))}` : ""}</a>`);
    place.innerHTML = `<button type="button" data-png>PNG</button>${rows.join("")}`;
  }

  /** The card as a picture on its own: with title, legend and a ground. */
  async function png(chart) {
    if (!chart.bound) return;
    const lib = await v.charts.plotly();
    const c = v.charts.colours();
    const layout = structuredClone(chart.plot.layout);
    Object.assign(layout, {
      paper_bgcolor: c.surface, plot_bgcolor: c.surface, showlegend: chart.spec.kind !== "heat", margin: { l: 64, r: 56, t: 56, b: 72 }, legend: { orientation: "h", y: -0.14, font: { color: c.text } },
      title: { text: v.escape(chart.spec.title) + (chart.spec.unit ? ` (${v.escape(chart.spec.unit)})` : ""), x: 0.02, font: { size: 15, color: c.text } },
    });
    for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, { gridcolor: c.grid, color: c.dim });
    const link = document.createElement("a");
    link.href = await lib.toImage({ data: chart.plot.data, layout }, { format: "png", width: 960, height: 480, scale: 2 });
    link.download = `${chart.view.runs.join("-").replace(/[^A-Za-z0-9._-]+/g, "_").slice(0, 100)}-${chart.spec.id}.png`;
    link.click();
  }

  /** At most forty rows, evenly taken, the newest first. */
  function table(chart) {
    const view = chart.view;
    if (!view) return;
    const columns = chart.spec.kind === "heat" ? shares(chart, view) : view.lines.flatMap((line) => (line.runs.length > 1 ? pools(chart, view, line) : line.runs.flatMap((run) => chart.spec.figure.data.map((template) => {
      const name = view.runs.length > 1 ? `${line.name}${chart.spec.figure.data.length > 1 ? `, ${template.name}` : ""}` : template.name;
      const values = new Map();
      const attempts = view.curves(run, template.meta.metric) || (chart.spec.kind === "stack" ? chart.rest(view, run, template.meta.metric) : null) || {};
      for (const number of Object.keys(attempts).sort((a, b) => a - b)) {
        attempts[number].x.forEach((x, i) => values.set(x, attempts[number].y[i]));
        for (const [x, what] of attempts[number].bad || []) if (values.get(x) == null) values.set(x, what);
      }
      return [name, values, view.runs.length > 1 ? run : null];
    }))));
    const steps = [...new Set(columns.flatMap(([, values]) => [...values.keys()]))].sort((a, b) => b - a);
    const stride = Math.ceil(steps.length / 40) || 1;
    const rows = steps.filter((_, i) => i % stride === 0);
    chart.sheet.innerHTML = `<table class="plain"><thead><tr><th scope="col">Step</th>${columns.map(([name]) => `<th scope="col" class="num">${v.escape(name)}</th>`).join("")}</tr></thead>
      <tbody>${rows.map((step) => `<tr><th scope="row" class="num">${v.integer(step)}</th>${columns.map(([, values, run]) => `<td class="num">${cell(chart, step, values, run)}</td>`).join("")}</tr>`).join("")}</tbody></table>`;
  }

  /** A value; among several runs it leads to its run at that step, as a click on the curve does. */
  function cell(chart, step, values, run) {
    const text = values.has(step) ? v.escape(typeof values.get(step) === "object" && values.get(step) ? values.get(step).text : chart.format(values.get(step))) : "";
    return text && run ? `<a href="${v.base}run/${encodeURIComponent(run)}?step=${step}">${text}</a>` : text;
  }

  /** The runs of a group as their mean, the smallest and largest of them, and how many there are. */
  function pools(chart, view, line) {
    return chart.spec.figure.data.flatMap((template) => {
      const parts = line.runs.map((run) => [run, v.charts.lived(view.curves(run, template.meta.metric) || {}, view.begins(run))]).filter(([, curve]) => curve.x.length);
      const pool = parts.length ? v.charts.pooled(view, parts) : { steps: [], y: [], low: [], high: [], all: [] };
      const column = (name, values) => [`${line.name}, ${name}`, new Map(pool.steps.map((step, i) => [step, values[i]]))];
      return [column("mean", pool.y), column("smallest", pool.low), column("largest", pool.high), column("runs", pool.all.map((all) => ({ text: all.length })))];
    });
  }

  /** A heat map in numbers: where its lower, middle and upper parts end, as the upper edges of their bins. */
  function shares(chart, view) {
    const map = view.heat(chart.metrics[0]) || { x: [], counts: [] };
    const at = (column, share) => {
      const wanted = share * column.reduce((a, b) => a + b, 0);
      let sum = 0;
      const bin = column.findIndex((count) => (sum += count) >= wanted && sum > 0);
      return map.edges[Math.min(map.first_bin + bin, map.edges.length - 1)];
    };
    return [["5 % below", 0.05], ["half below", 0.5], ["95 % below", 0.95]].map(([name, share]) => [name, new Map(map.x.map((x, i) => [x, at(map.counts[i], share)]))]);
  }

  return { foot, table };
})();
