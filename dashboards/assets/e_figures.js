/* Figures that are whole when the page is made: drawn once, again in another theme, a click follows the link of what was clicked. */
(function () {
  "use strict";
  const v = vitals;

  /** Colours of the theme for a figure that names slots of the palette and severities. */
  function coloured(spec, c) {
    const { data, layout } = structuredClone(spec);
    for (const trace of data) {
      const colour = trace.meta?.slot != null ? c.lines[trace.meta.slot % c.lines.length] : c[trace.meta?.tone] || c.dim;
      delete trace.meta;
      if (layout.xaxis.type === "date") trace.x = trace.x.map((at) => new Date(at));
      if (/lines/.test(trace.mode)) trace.line = { ...trace.line, color: colour, width: trace.line?.width ?? 1.8 };
      trace.marker = { ...trace.marker, color: colour };
    }
    if (layout.xaxis.type === "date") layout.xaxis.range = layout.xaxis.range.map((at) => new Date(at));
    for (const note of layout.annotations || []) Object.assign(note, { bgcolor: c.surface, borderpad: 1, font: { ...note.font, color: note.font ? c.text : c.dim } });
    for (const shape of layout.shapes || []) shape.line = { color: c.border, width: 1 };
    for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, { gridcolor: c.grid, color: c.dim });
    Object.assign(layout, {
      autosize: true, showlegend: false, ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 11, color: c.dim },
      hoverlabel: { bgcolor: c.surface, bordercolor: c.border, font: { color: c.text, size: 12 } },
    });
    return [data, layout];
  }

  async function draw(node) {
    const lib = await v.charts.plotly();
    if (!node.isConnected) return;
    const first = !node.matches(".js-plotly-plot");
    await lib.react(node, ...coloured(JSON.parse(node.dataset.figure), v.charts.colours()), { displayModeBar: false, responsive: true, showTips: false, doubleClick: false });
    if (!first) return;
    node.on("plotly_click", ({ points }) => {
      const link = points[0]?.customdata;
      if (typeof link === "string" && link.startsWith(v.base)) v.go(link);
    });
  }

  const drawAll = (nodes) => { for (const node of nodes) draw(node).catch((error) => { if (!(error instanceof TypeError)) console.error(error); }); };
  v.arriving("[data-figure]", (node) => drawAll([node]));
  document.addEventListener("vitals-theme", () => drawAll(document.querySelectorAll("[data-figure]")));
})();
