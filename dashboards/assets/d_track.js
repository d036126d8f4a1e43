/* What a page knows of one run: its attempts, its series as they grow, and where its steps lie on other axes. */
vitals.tracks = (function () {
  "use strict";
  const isClocked = (axis) => axis === "time" || axis === "elapsed";

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
      if (isClocked(axis)) return this.clock || [];
      if (axis !== "tokens") return [];
      const attempts = this.series["progress.tokens"] || {};
      const curve = attempts[Object.keys(attempts).sort((a, b) => b - a)[0]];
      if (!curve) return [];
      if (this.tokens?.of !== curve) this.tokens = { of: curve, pairs: curve.x.map((x, i) => [x, curve.y[i]]).filter(([, y]) => y != null) };
      return this.tokens.pairs;
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

    /** Where a step lies on an axis. */
    toX(axis, step) {
      const pairs = this.pairs(axis);
      const at = interpolate(pairs, step);
      if (!pairs.length || axis === "tokens") return at;
      return axis === "time" ? new Date(at * 1000) : (at - pairs[0][1]) / 3600;
    }

    /** The step at a place on an axis; Plotly names times as local ones, without a zone. */
    toStep(axis, x) {
      const pairs = this.pairs(axis);
      let at = Number(x);
      if (axis === "time" && pairs.length) at = new Date(typeof x === "string" ? x.replace(" ", "T") : x).getTime() / 1000;
      else if (axis === "elapsed" && pairs.length) at = x * 3600 + pairs[0][1];
      return interpolate(pairs.map(([step, place]) => [place, step]), at);
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

  return { Track, isClocked };
})();
