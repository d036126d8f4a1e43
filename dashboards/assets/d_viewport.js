/* Which part of its runs a page shows, on which axis, and how finely: zoom, the newest steps, and the address that holds them. */
vitals.Viewport = (function () {
  "use strict";
  const v = vitals;
  const REFINE_EVERY_MS = 6000;

  return class Viewport {
    /** What extends it knows `runs`, `tracks`, `charts`, `known`, `have` and how to `redrawAll`, `poll` and read `heatMaps`. */
    constructor(root) {
      this.root = root;
      this.axis = v.address.get("axis") || "step";
      this.range = null;
      this.shown = null;
      this.newest = 0;
      this.fine = {};
      this.asked = {};
      this.epoch = 0;
    }

    /** Listens to the fields of the toolbar, and shows what the address asks for. */
    wire(on) {
      const axis = this.root.querySelector("#axis");
      axis.value = this.axis;
      on(axis, "change", () => {
        this.axis = axis.value;
        v.address.set({ axis: axis.value === "step" ? "" : axis.value });
        [this.wish, this.range, this.shown] = [this.range, null, null];
        this.needAxis().then(() => this.grant() || this.redrawAll());
      });
      on(this.root.querySelector("#unzoom"), "click", () => this.zoomed(null, null));
      const newest = this.root.querySelector("#newest");
      if (newest) {
        newest.value = v.address.get("newest");
        this.newest = Number(newest.value) || 0;
        on(newest, "change", () => {
          const chosen = newest.value;
          this.zoomed(null, null);
          newest.value = chosen;
          this.newest = Number(chosen) || 0;
          v.address.set({ newest: chosen });
          this.follow();
        });
      }
      const zoom = v.address.get("zoom").split("-").map(Number);
      if (zoom.length === 2 && zoom[0] < zoom[1]) this.wish = zoom;
      this.needAxis().then(() => this.grant());
    }

    toX(run, step) { return this.tracks.get(run).toX(this.axis, step); }
    stepsOf(run, from, to) { return [Math.max(0, Math.floor(this.tracks.get(run).toStep(this.axis, from))), Math.ceil(this.tracks.get(run).toStep(this.axis, to))]; }
    curves(run, metric) { return this.fine[run]?.[metric] || this.tracks.get(run).series[metric]; }

    async needAxis() {
      if (v.tracks.isClocked(this.axis)) {
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

    /** After an answer: shows what waited for it, and follows a run that `grown` says went on. */
    went(before, grown) {
      this.grant();
      if (grown) this.follow();
      const stale = !before || (grown && this.range && this.range[1] >= before && Date.now() - this.refined > REFINE_EVERY_MS);
      if (this.range && stale) this.refine(true);
    }

    /** All charts show the same part of the run, given in places on the axis; a part of a long run is read again at its own resolution. */
    zoom(from, to) {
      if (from == null && !this.shown) return;
      this.shown = from == null ? null : [from, to];
      this.fine = {};
      this.asked = {};
      this.epoch += 1;
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
      if (field) field.value = "";
      v.address.set({ newest: "", zoom: this.range ? this.range.join("-") : "" });
    }

    /** Shows the steps that were wished for, once it is known where they are on the axis. */
    grant() {
      if (!this.wish || (this.axis !== "step" && !this.tracks.get(this.runs[0]).pairs(this.axis).length)) return false;
      this.zoom(...this.wish.map((step) => this.toX(this.runs[0], step)));
      this.wish = null;
      return true;
    }

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
  };
})();
