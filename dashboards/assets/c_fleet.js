/* The fleet: one row per run, from /api/v1/runs. Rows that did not change are not touched; small series are read for rows in view. */
(function () {
  "use strict";
  const v = vitals;
  const COLUMNS = [
    { key: "severity", label: "Verdict", value: (r) => v.URGENCY.indexOf(r.severity in v.SEVERITIES ? r.severity : "unknown") },
    { key: "name", label: "Run", value: (r) => r.name.toLowerCase() },
    { key: "step", label: "Step", number: true, value: (r) => (r.step == null ? -1 : r.step) },
    { key: "seen", label: "Last batch", number: true, value: (r) => -r.seen },
    { key: "reward", label: "Task reward", spark: true, value: (r, s) => last(s, "reward") },
    { key: "entropy", label: "Entropy", spark: true, value: (r, s) => last(s, "entropy") },
    { key: "kl", label: "KL", spark: true, value: (r, s) => last(s, "kl") },
    { key: "alerts", label: "Open alerts", number: true, value: (r) => r.critical * 1000 + r.warning },
  ];
  const SPARK_EVERY_MS = 10000;
  const GROUPS = { project: (run) => [run.project], tag: (run) => (run.tags.length ? run.tags : [""]), algorithm: (run) => [run.algorithm ? run.algorithm.toUpperCase() : ""] };
  const UNNAMED = { tag: "No tag", algorithm: "No algorithm named" };
  /** Events after which the address may be another one: the way back, and links of the router, which does not notice what we wrote there. */
  const MOVED = ["popstate", "_dashprivate_pushstate"];
  const FILTERS = ["q", "project", "state", "tag"];

  /** Names in a parameter of the address, which may hold commas. */
  const listed = (key) => v.address.get(key).split(",").filter(Boolean).map(decodeURIComponent);
  const written = (names) => [...names].map(encodeURIComponent).join(",");

  const curve = (sparks, key) => {
    const attempts = (sparks && sparks[key]) || {};
    const newest = Object.keys(attempts).sort((a, b) => b - a)[0];
    return newest == null ? null : attempts[newest];
  };
  const last = (sparks, key) => {
    const found = curve(sparks, key);
    return found ? found.y.filter((y) => y != null).at(-1) ?? -Infinity : -Infinity;
  };

  /** A small line over its own range, gaps where nothing finite was measured, a cross where a value was not finite. */
  function sparkline(found, label) {
    if (!found || !found.x.length) return '<span class="dim">–</span>';
    const [w, h, pad] = [76, 26, 2];
    const finite = found.y.filter((y) => y != null);
    const [low, high] = [Math.min(...finite), Math.max(...finite)];
    const [x0, x1] = [found.x[0], found.x.at(-1)];
    const px = (x) => (x1 === x0 ? w / 2 : pad + ((w - 2 * pad) * (x - x0)) / (x1 - x0));
    const py = (y) => (high === low ? h / 2 : h - pad - ((h - 2 * pad) * (y - low)) / (high - low));
    let path = "";
    let pen = "M";
    found.x.forEach((x, i) => {
      if (found.y[i] == null) { pen = "M"; return; }
      path += `${pen}${px(x).toFixed(1)} ${py(found.y[i]).toFixed(1)}`;
      pen = "L";
    });
    const bad = (found.bad || []).slice(0, 20).map(([x]) => `<path class="bad" d="M${(px(x) - 2).toFixed(1)} 2l4 4m0-4l-4 4"/>`).join("");
    const value = finite.length ? v.brief(finite.at(-1)) : found.bad ? found.bad.at(-1)[1] : "–";
    const words = finite.length ? `${label} ${value}, from ${v.number(finite[0])}` : `${label}: no finite value`;
    return `<svg class="spark" preserveAspectRatio="xMinYMid meet" viewBox="0 0 ${w} ${h}" width="${w}" height="${h}" role="img" aria-label="${v.escape(words)}"><path d="${path}"/>${bad}</svg><span class="last">${v.escape(value)}</span>`;
  }

  function speed(run) {
    if (!run.speed) return "–";
    return run.speed < 1 ? `${v.brief(1 / run.speed)} s/step` : `${v.brief(run.speed)} steps/s`;
  }

  const state = (run) => (run.state === "running" ? "" : `<span class="state state-${v.escape(run.state)}">${v.escape(run.state)}</span>`);

  function cells(run, sparks, marked) {
    const told = ["critical", "warning", "watch"].includes(run.severity) && run.sentence;
    const tags = run.tags.slice(0, 3).map((tag) => `<button type="button" class="tag-of" data-tag="${v.escape(tag)}" title="Only runs with this tag">${v.escape(tag)}</button>`);
    const where = [...[run.algorithm && run.algorithm.toUpperCase(), run.project].filter(Boolean).map(v.escape), ...tags].join("\u00a0· ");
    const alerts = run.critical + run.warning;
    const counts = alerts ? `<a class="count ${run.critical ? "bad" : "some"}" href="${v.base}alerts?run=${encodeURIComponent(run.run)}" aria-label="${v.counted(alerts, "open alert")}">${alerts}</a>` : '<span class="dim">0</span>';
    return `<td class="c-mark" role="cell"><input type="checkbox" data-mark ${marked ? "checked" : ""} aria-label="Compare ${v.escape(run.name)}"></td>
      <td role="cell" class="c-verdict">${v.pill(run.severity)}</td>
      <th role="rowheader" scope="row" class="c-run"><a href="${v.base}run/${encodeURIComponent(run.run)}">${v.escape(run.name)}</a>
        <div class="sub">${state(run)}${where}</div>${told ? `<div class="sub why">${v.escape(run.sentence)}</div>` : ""}</th>
      <td role="cell" class="num c-step">${v.integer(run.step)}<div class="sub">${speed(run)}</div></td>
      <td role="cell" class="num c-seen" data-seen="${run.seen}" data-running="${run.state === "running" ? 1 : ""}"><span></span></td>
      <td role="cell" class="c-spark c-reward" data-label="reward">${sparkline(curve(sparks, "reward"), "Task reward")}</td>
      <td role="cell" class="c-spark c-entropy" data-label="entropy">${sparkline(curve(sparks, "entropy"), "Entropy")}</td>
      <td role="cell" class="c-spark c-kl" data-label="KL">${sparkline(curve(sparks, "kl"), "KL to the reference")}</td>
      <td role="cell" class="num c-alerts">${counts}</td>`;
  }

  function skeleton(root) {
    const projects = [...new Set([...JSON.parse(root.dataset.projects || "[]"), v.address.get("project")])].filter(Boolean);
    const options = (list, chosen) => list.map(([value, text]) => `<option value="${v.escape(value)}"${value === chosen ? " selected" : ""}>${v.escape(text)}</option>`).join("");
    root.innerHTML = `
      <div class="filters">
        <div class="chips" role="group" aria-label="Filter by verdict"></div>
        <div class="tools">
          <label class="field"><span class="glyph glyph-search" aria-hidden="true"></span><span class="hidden">Search runs</span>
            <input id="fleet-search" type="search" placeholder="Search name, project, tag" autocomplete="off" spellcheck="false" value="${v.escape(v.address.get("q"))}"></label>
          <label class="field select"><span class="hidden">Project</span><select id="fleet-project">${options([["", "All projects"], ...projects.map((p) => [p, p])], v.address.get("project"))}</select></label>
          <label class="field select"><span class="hidden">State</span><select id="fleet-state">${options([["", "Any state"], ["running", "Running"], ["ended", "Ended"]], v.address.get("state"))}</select></label>
          <label class="field select"><span class="hidden">Group by</span><select id="fleet-group">${options([["", "No groups"], ["project", "By project"], ["tag", "By tag"], ["algorithm", "By algorithm"]], v.address.get("group"))}</select></label>
          <details class="menu" id="fleet-views"></details>
          <a id="fleet-past" class="button" hidden>History</a>
          <button type="button" id="fleet-compare" class="button" disabled>Compare</button>
        </div>
      </div>
      <div class="fleet" hidden><table role="table" aria-label="Runs"><thead role="rowgroup"><tr role="row"><td role="cell" class="c-mark"><span class="hidden">Compare</span></td>${COLUMNS.map((c) =>
        `<th role="columnheader" scope="col" data-key="${c.key}" class="${c.number ? "num" : ""} h-${c.key}"><button type="button">${c.label}<span class="arrow" aria-hidden="true"></span></button></th>`).join("")}</tr></thead><tbody role="rowgroup"></tbody></table></div>
      <div class="note" role="status"></div>`;
  }

  class Fleet {
    constructor(root) {
      this.root = root.querySelector("#fleet");
      this.runs = new Map();
      this.sparks = new Map();
      this.sparkAt = new Map();
      this.rows = new Map();
      this.marked = new Set(listed("mark"));
      this.cursor = null;
      this.visible = new Set();
      this.watch = new IntersectionObserver((entries) => {
        for (const entry of entries) entry.isIntersecting ? this.visible.add(entry.target.dataset.run) : this.visible.delete(entry.target.dataset.run);
        this.wantSparks();
      }, { rootMargin: "300px" });
      this.root.addEventListener("click", (event) => this.clicked(event));
      this.root.addEventListener("change", (event) => this.changed(event));
      this.root.addEventListener("input", (event) => { if (event.target.id === "fleet-search") this.search(event.target.value); });
      this.root.addEventListener("keydown", (event) => this.key(event));
      this.ages = setInterval(() => this.writeAges(), 1000);
      this.back = () => { if (location.pathname === v.base) this.restore(); };
      for (const kind of MOVED) addEventListener(kind, this.back);
      this.restore();
    }

    /** Begins again with what the address asks for. */
    restore() {
      this.folded = new Set(listed("fold"));
      this.rows.clear();
      this.visible.clear();
      this.watch.disconnect();
      skeleton(this.root);
      this.tellMarked();
      this.body = this.root.querySelector("tbody");
      this.views = new v.views(this.root.querySelector("#fleet-views"), (search) => this.go(search));
      if (this.cursor == null) return;
      this.draw(new Set());
      v.poll();
    }

    /** Another view of the fleet, which the way back leaves again; runs that are marked stay so. */
    go(search) {
      history.pushState({}, "", v.base + search);
      this.writeMarked();
      this.restore();
    }

    stop() {
      for (const kind of MOVED) removeEventListener(kind, this.back);
      clearInterval(this.ages);
      this.watch.disconnect();
    }

    filter() {
      return Object.fromEntries(FILTERS.map((key) => [key, v.address.get(key)]));
    }

    async poll() {
      const filter = this.filter();
      const asked = JSON.stringify(filter);
      const fresh = this.cursor == null || asked !== this.asked;
      const answer = await v.api("runs", { ...filter, since: fresh ? "" : this.cursor });
      if (asked !== JSON.stringify(this.filter())) return answer;
      if (fresh) this.runs.clear();
      this.asked = asked;
      this.cursor = answer.cursor;
      if (answer.total != null) this.total = answer.total;
      const touched = new Set();
      for (const run of answer.runs) {
        const before = this.runs.get(run.run);
        if (!before || JSON.stringify(before) !== JSON.stringify(run)) touched.add(run.run);
        this.runs.set(run.run, run);
      }
      if (fresh || touched.size) this.draw(touched);
      this.wantSparks();
      return answer;
    }

    order() {
      const severity = v.address.get("severity");
      const [key, down] = this.sorting();
      const column = COLUMNS.find((c) => c.key === key) || COLUMNS[0];
      const list = [...this.runs.values()].filter((run) => !severity || run.severity === severity);
      const value = (run) => column.value(run, this.sparks.get(run.run));
      list.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return (x < y ? -1 : x > y ? 1 : b.seen - a.seen) * (down && x !== y ? -1 : 1);
      });
      return list;
    }

    sorting() {
      const text = v.address.get("sort") || "severity";
      return [text.replace(/^-/, ""), text.startsWith("-")];
    }

    /** Runs under the heading of each group they belong to; the group of the first run comes first. */
    grouped(list) {
      const by = v.address.get("group");
      if (!(by in GROUPS)) return [[null, list]];
      const groups = new Map();
      for (const run of list) for (const name of GROUPS[by](run)) groups.set(name, [...(groups.get(name) || []), run]);
      return [...groups].map(([name, runs]) => [name || UNNAMED[by], runs]);
    }

    draw(touched) {
      const list = this.order();
      const wanted = [];
      for (const [group, runs] of this.grouped(list)) {
        if (group != null) wanted.push([`group ${group}`, null, group, runs]);
        if (group == null || !this.folded.has(group)) for (const run of runs) wanted.push([`${group ?? ""} ${run.run}`, run]);
      }
      const keep = new Set(wanted.map(([key]) => key));
      for (const [key, row] of this.rows) if (!keep.has(key)) { this.watch.unobserve(row); row.remove(); this.rows.delete(key); this.visible.delete(row.dataset.run); }
      let place = this.body.firstElementChild;
      for (const [key, run, group, runs] of wanted) {
        let row = this.rows.get(key);
        const fresh = !row;
        if (fresh) {
          row = document.createElement("tr");
          row.setAttribute("role", "row");
          this.rows.set(key, row);
          if (run) {
            row.dataset.run = run.run;
            row.dataset.stop = "";
            row.tabIndex = -1;
            this.watch.observe(row);
          }
        }
        if (!run) this.head(row, group, runs);
        else if (fresh || touched.has(run.run)) this.fill(run, row);
        if (row !== place) this.body.insertBefore(row, place);
        else place = place.nextElementSibling;
      }
      this.frame(list.length);
      this.writeAges();
    }

    /** The heading of a group: its name folds it, beside it how its runs are. */
    head(row, group, runs) {
      const told = v.URGENCY.map((severity) => [severity, runs.filter((run) => (run.severity in v.SEVERITIES ? run.severity : "unknown") === severity).length]).filter(([, count]) => count);
      const html = `<th role="rowheader" scope="rowgroup" colspan="${COLUMNS.length + 1}"><button type="button" data-fold="${v.escape(group)}" aria-expanded="${!this.folded.has(group)}">${v.escape(group)}</button>
        <span class="dim">${v.counted(runs.length, "run")}</span>${v.address.get("group") === "project" ? ` <a class="small" href="${v.base}project/${encodeURIComponent(group)}" aria-label="History of ${v.escape(group)}">history</a>` : ""}${told.map(([severity, count]) => `<span class="tally sev-${severity.replace(" ", "-")}"><span class="icon" aria-hidden="true"></span>${count} ${v.SEVERITIES[severity].toLowerCase()}</span>`).join("")}</th>`;
      row.className = "group-row";
      if (row.dataset.html !== html) { row.innerHTML = html; row.dataset.html = html; }
    }

    fill(run, row) {
      row.className = `edge-${run.severity.replace(" ", "-")}`;
      row.innerHTML = cells(run, this.sparks.get(run.run), this.marked.has(run.run));
    }

    /** Everything around the rows: counts, sort marks, and what to say when there are none. */
    frame(shown) {
      this.views.draw();
      const counts = {};
      for (const run of this.runs.values()) counts[run.severity in v.SEVERITIES ? run.severity : "unknown"] = (counts[run.severity] || 0) + 1;
      const chosen = v.address.get("severity");
      const chips = v.URGENCY.filter((s) => counts[s] || s === chosen).map((s) =>
        `<button type="button" class="chip sev-${s.replace(" ", "-")}" data-severity="${s}" aria-pressed="${s === chosen}"><span class="icon" aria-hidden="true"></span>${counts[s] || 0} ${v.SEVERITIES[s].toLowerCase()}</button>`).join("");
      const tag = v.address.get("tag");
      const only = tag ? `<button type="button" class="chip" data-tag="" aria-pressed="true" title="Any tag">tag ${v.escape(tag)} ×</button>` : "";
      const place = this.root.querySelector(".chips");
      if (place.dataset.html !== chips + only) { place.innerHTML = chips + only; place.dataset.html = chips + only; }
      const [key, down] = this.sorting();
      for (const head of this.root.querySelectorAll("th[data-key]")) {
        if (head.dataset.key === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      }
      const running = [...this.runs.values()].filter((run) => run.state === "running").length;
      const summary = document.getElementById("fleet-summary");
      const total = this.total > this.runs.size ? `${v.integer(this.runs.size)} of ${v.integer(this.total)} runs, search to narrow` : v.counted(this.runs.size, "run");
      const text = this.runs.size ? `${total}, ${running} running` : "";
      if (summary && summary.textContent !== text) summary.textContent = text;
      const project = v.address.get("project");
      const past = this.root.querySelector("#fleet-past");
      past.hidden = !project;
      past.href = `${v.base}project/${encodeURIComponent(project)}`;
      this.root.querySelector(".fleet").hidden = shown === 0;
      this.root.querySelector(".filters").hidden = this.runs.size === 0 && !Object.values(this.filter()).some(Boolean) && !chosen;
      const note = this.root.querySelector(".note");
      const kind = shown ? "" : this.runs.size || Object.values(this.filter()).some(Boolean) ? "none" : "empty";
      if (note.dataset.kind === kind) return;
      note.dataset.kind = kind;
      note.innerHTML = kind === "none" ? '<div class="empty"><h2>No run matches</h2><p>Change the search or the filters. <button type="button" class="button" data-clear>Show every run</button></p></div>'
        : kind === "empty" ? this.teach() : "";
    }

    teach() {
      return `<div class="empty"><h2>No run yet</h2><p>Three lines of Python in a training loop put one here within seconds:</p>
        <pre class="code" tabindex="0"><code>${v.escape(this.root.dataset.start)}</code></pre>
        <p>Start it with <code>VITALS_URL=${v.escape(location.origin)}</code>. No training at hand? <code>vitals demo</code> trains a small policy into a collapse and shows it here.</p></div>`;
    }

    writeAges() {
      for (const cell of this.root.querySelectorAll(".c-seen")) {
        const seconds = v.now() - Number(cell.dataset.seen);
        const text = v.age(Number(cell.dataset.seen));
        if (cell.firstChild.textContent !== text) cell.firstChild.textContent = text;
        cell.classList.toggle("late", Boolean(cell.dataset.running) && seconds > 300);
      }
    }

    async wantSparks() {
      if (this.reading) return;
      const due = [...this.visible].filter((uid) => {
        const run = this.runs.get(uid);
        const had = this.sparkAt.get(uid);
        return run && run.step != null && (!had || (had.step !== run.step && Date.now() - had.at > SPARK_EVERY_MS));
      }).slice(0, 30);
      if (!due.length) return;
      this.reading = true;
      try {
        const found = await v.api("sparks", { runs: due.join(",") });
        const touched = new Set(due);
        for (const uid of due) {
          this.sparkAt.set(uid, { step: this.runs.get(uid)?.step, at: Date.now() });
          if (found[uid]) this.sparks.set(uid, found[uid]);
        }
        for (const row of this.rows.values()) if (touched.has(row.dataset.run) && this.runs.has(row.dataset.run)) this.fill(this.runs.get(row.dataset.run), row);
        this.writeAges();
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
      } finally {
        this.reading = false;
      }
      this.wantSparks();
    }

    search(text) {
      v.address.set({ q: text.trim() });
      clearTimeout(this.typing);
      this.typing = setTimeout(v.poll, 150);
    }

    changed(event) {
      const { id, value } = event.target;
      if (event.target.matches("[data-mark]")) this.mark(event.target.closest("tr").dataset.run, event.target.checked);
      else if (id === "fleet-project" || id === "fleet-state") { v.address.set({ [id.slice(6)]: value }); v.poll(); }
      else if (id === "fleet-group") { v.address.set({ group: value }); this.fold([]); this.draw(new Set()); }
    }

    mark(uid, on) {
      on ? this.marked.add(uid) : this.marked.delete(uid);
      for (const row of this.rows.values()) if (row.dataset.run === uid) row.querySelector("[data-mark]").checked = on;
      this.writeMarked();
      this.tellMarked();
    }

    writeMarked() { v.address.set({ mark: written(this.marked) }); }

    fold(groups) {
      this.folded = new Set(groups);
      v.address.set({ fold: written(this.folded) });
    }

    tellMarked() {
      const button = this.root.querySelector("#fleet-compare");
      button.disabled = this.marked.size < 2;
      button.textContent = this.marked.size > 1 ? `Compare ${this.marked.size}` : "Compare";
    }

    clicked(event) {
      const chip = event.target.closest("[data-severity]");
      const head = event.target.closest("th[data-key] button");
      const row = event.target.closest("tbody tr[data-run]");
      const tag = event.target.closest("[data-tag]");
      const fold = event.target.closest("[data-fold]");
      if (tag) { v.address.set({ tag: tag.dataset.tag }); v.poll(); }
      else if (fold) {
        const group = fold.dataset.fold;
        this.fold(this.folded.has(group) ? [...this.folded].filter((each) => each !== group) : [...this.folded, group]);
        this.draw(new Set());
      } else if (chip) { v.address.set({ severity: chip.getAttribute("aria-pressed") === "true" ? "" : chip.dataset.severity }); this.draw(new Set()); }
      else if (head) {
        const key = head.parentElement.dataset.key;
        const [now, down] = this.sorting();
        v.address.set({ sort: now === key && !down ? `-${key}` : key });
        this.draw(new Set());
      } else if (event.target.closest("[data-clear]")) { v.address.set({ severity: "", view: "", ...Object.fromEntries(FILTERS.map((key) => [key, ""])) }); this.restore(); }
      else if (event.target.closest("#fleet-compare")) v.go(`${v.base}compare?runs=${[...this.marked].map(encodeURIComponent).join(",")}`);
      else if (row && !event.target.closest("a, input, button") && !String(getSelection())) row.querySelector("th a").click();
    }

    key(event) {
      const row = event.target.closest("tbody tr[data-run]");
      if (!row || event.target !== row) {
        if (event.target.id === "fleet-search" && event.key === "Escape") event.target.blur();
        return;
      }
      if (event.key === "Enter") row.querySelector("th a").click();
      if (event.key === "x") { const box = row.querySelector("[data-mark]"); box.checked = !box.checked; this.mark(row.dataset.run, box.checked); }
    }
  }

  v.page("fleet", (root) => new Fleet(root));
})();
