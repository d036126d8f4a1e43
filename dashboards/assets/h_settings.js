/* The settings page: tests of channels, silences, and back-tests. */
(function () {
  "use strict";
  const v = vitals;
  const DAY_S = 86400;
  const SINCE = [[7, "the last 7 days"], [30, "the last 30 days"], [90, "the last 90 days"], ["", "whenever"]];
  const KEPT = "vitals-backtest";

  /** Stored runs judged again under other thresholds: the answer is read as it comes, a line per run. */
  class Backtest {
    constructor(root) {
      this.root = root;
      const option = (value, text, chosen) => `<option value="${v.escape(value)}"${String(value) === chosen ? " selected" : ""}>${v.escape(text)}</option>`;
      const projects = JSON.parse(root.dataset.projects);
      root.innerHTML = `
        <p class="dim">Which alarms would stored runs have raised under other thresholds? The newest runs are judged again, under the rules in force and under yours; nothing is changed.</p>
        <form class="backtest" novalidate>
          <label class="ask"><span>Rules to try, in place of the whole rules file</span><textarea name="rules" class="mono" rows="6" spellcheck="false" placeholder="[detectors.no_signal]&#10;floor = 0.02"></textarea></label>
          <div class="tools">
            <label class="field"><span>Runs of</span><select name="project">${option("", "every project", v.address.get("project"))}${projects.map((each) => option(each, each, v.address.get("project"))).join("")}</select></label>
            <label class="field"><span>from</span><select name="since">${SINCE.map(([days, text]) => option(days, text, v.address.get("since"))).join("")}</select></label>
            <button class="button strong">Judge again</button><button type="button" class="button" data-halt hidden>Stop</button>
          </div>
        </form>
        <p class="failed" role="alert"></p>
        <p class="progress" role="status" hidden><progress max="1" value="0" aria-label="Runs judged"></progress> <span></span></p>
        <div class="results"></div>`;
      this.form = root.querySelector("form");
      this.form.elements.rules.value = root.dataset.rules;
      try { this.form.elements.rules.value = sessionStorage.getItem(KEPT) ?? root.dataset.rules; } catch (error) { /* storage may be forbidden */ }
      root.addEventListener("input", () => { try { sessionStorage.setItem(KEPT, this.form.elements.rules.value); } catch (error) { /* as above */ } });
      root.addEventListener("change", (event) => { if (event.target.name !== "rules") v.address.set({ [event.target.name]: event.target.value }); });
      root.addEventListener("submit", (event) => { event.preventDefault(); this.run(); });
      root.addEventListener("click", (event) => { if (event.target.closest("[data-halt]")) this.stop(); });
    }

    node(place) { return this.root.querySelector(place); }

    stop() { this.control?.abort(); }

    /** Puts a threshold among the rules to try, unless it is there, and its value under the cursor. */
    add({ table, name, value }) {
      const field = this.form.elements.rules;
      const lines = field.value.replace(/\n+$/, "").split("\n");
      let head = lines.findIndex((line) => line.trim() === `[${table}]`);
      if (head < 0) head = lines.push(...(field.value.trim() ? ["", `[${table}]`] : [`[${table}]`])) - 1;
      if (lines[0] === "") { lines.shift(); head -= 1; }
      const end = lines.findIndex((line, i) => i > head && line.trim().startsWith("["));
      const own = lines.findIndex((line, i) => i > head && (end < 0 || i < end) && line.split("=")[0].trim() === name);
      if (own < 0) lines.splice(head + 1, 0, `${name} = ${value}`);
      const at = own < 0 ? head + 1 : own;
      field.value = `${lines.join("\n")}\n`;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      field.focus();
      const start = lines.slice(0, at).join("\n").length + (at ? 1 : 0) + lines[at].indexOf("=") + 1;
      field.setSelectionRange(start + (lines[at][lines[at].indexOf("=") + 1] === " " ? 1 : 0), start + lines[at].length - lines[at].indexOf("=") - 1);
    }

    async run() {
      if (this.control) return;
      const { rules, project, since } = this.form.elements;
      this.control = new AbortController();
      this.found = { runs: 0, judged: 0, differ: [], summary: null };
      this.node(".failed").textContent = "";
      this.node("[data-halt]").hidden = false;
      this.draw();
      const asked = { rules: rules.value, project: project.value || null, since: since.value ? v.now() - since.value * DAY_S : null };
      try {
        const answer = await v.ask("backtest", null, { method: "POST", body: JSON.stringify(asked), headers: { "Content-Type": "application/json" }, signal: this.control.signal });
        await this.read(answer.body);
      } catch (error) {
        if (error.name === "AbortError") this.found.stopped = true;
        else this.node(".failed").innerHTML = error.status ? v.acts.complaint(error) : "The collector went away before the end; what is shown is complete for the runs it names.";
      }
      this.control = null;
      this.node("[data-halt]").hidden = true;
      this.draw();
    }

    async read(body) {
      const reader = body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        const lines = (rest + (value || "")).split("\n");
        rest = lines.pop();
        for (const line of lines) this.take(JSON.parse(line));
        this.draw();
        if (done) return;
      }
    }

    take(told) {
      if (told.error) this.node(".failed").textContent = told.error;
      else if (told.run === undefined && told.today) this.found.summary = told;
      else if (told.run === undefined) this.found.runs = told.runs;
      else {
        this.found.judged += 1;
        if (told.gained.length || told.lost.length) this.found.differ.push(told);
      }
    }

    draw() {
      const { runs, judged, differ, summary, stopped } = this.found;
      const over = !this.control;
      const progress = this.node(".progress");
      progress.hidden = false;
      const bar = progress.querySelector("progress");
      bar.max = Math.max(1, runs);
      bar.value = judged;
      bar.hidden = over;
      progress.querySelector("span").textContent = over && !runs ? (stopped ? "Stopped." : "No stored run fits.")
        : `${over ? v.counted(judged, "run") : `${v.integer(judged)} of ${v.counted(runs, "run")}`} judged${stopped ? ", then stopped" : ""}; ${differ.length ? `${v.counted(differ.length, "run")} would have raised other alarms` : "no alarm differs"}.`;
      this.node(".results").innerHTML = (differ.length ? this.table(differ) : "") + (summary ? this.sums(summary) : "");
    }

    table(differ) {
      const fire = (each, word) => `<div class="${word}"><b>${word === "gained" ? "+" : "−"}</b> ${v.escape(each.severity)} <span class="mono">${v.escape(each.detector)}</span> at step ${v.integer(each.step)}${each.told ? "" : ' <span class="dim">held</span>'}</div>`;
      const rows = differ.map((run) => `<tr><td data-label="Run" class="wide"><a href="${v.base}run/${encodeURIComponent(run.run)}">${v.escape(run.name)}</a> <span class="dim">${v.escape(run.project)}</span></td>
        <td data-label="Came to">${v.escape(run.outcome || "not said")}</td><td data-label="Would also have raised" class="wide">${run.gained.map((each) => fire(each, "gained")).join("") || "–"}</td>
        <td data-label="Would not have raised" class="wide">${run.lost.map((each) => fire(each, "lost")).join("") || "–"}</td></tr>`);
      return `<div class="scroll" tabindex="0" role="region" aria-label="Runs that differ"><table class="plain cards"><thead><tr>${["Run", "Came to", "Would also have raised", "Would not have raised"].map((head) => `<th scope="col">${head}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
    }

    /** What it would have cost and caught, over the runs of which somebody said what they came to. */
    sums(told) {
      const line = (name, side) => `<tr><th scope="row">${name}</th><td class="num">${v.integer(side.incidents)}</td><td class="num">${v.integer(side.caught)} of ${v.integer(told.ill_runs)}</td><td class="num">${v.integer(side.noisy)} of ${v.integer(told.healthy_runs)}</td><td class="num">${v.number(side.false_per_1000)}</td></tr>`;
      const hint = told.labelled ? "" : '<p class="dim">Of no run it is said what it came to; say so on the pages of their incidents, and this becomes a score.</p>';
      return `<div class="scroll" tabindex="0" role="region" aria-label="Sums"><table class="plain sums"><thead><tr><td></td>${["Incidents", "Ill runs told of", "Healthy runs told of", "False per 1000 rows"].map((head) => `<th scope="col" class="num">${head}</th>`).join("")}</tr></thead>
        <tbody>${line("In force", told.today)}${line("Tried", told.tried)}</tbody></table></div>${hint}`;
    }
  }

  class Settings {
    constructor(root) {
      this.root = root;
      this.muted = root.querySelector("#settings-silences");
      this.muted.innerHTML = `<div class="silences"></div><p class="none dim">Nothing is silenced.</p><p class="failed" role="alert"></p>
        <details class="silencing"><summary>Silence something</summary>${v.acts.nameField()}${v.acts.silenceForm(v.acts.matcherFields(JSON.parse(root.dataset.matchable)))}</details>`;
      this.told = new MutationObserver(() => this.drawSilences());
      this.told.observe(this.muted, { attributes: true });
      this.drawSilences();
      this.tested = new Map();
      this.drawn = new MutationObserver(() => this.tell());
      this.drawn.observe(root.querySelector("#settings-channels"), { childList: true, subtree: true });
      this.backtest = new Backtest(root.querySelector("#backtest-panel"));
      root.addEventListener("click", (event) => this.clicked(event));
      this.muted.addEventListener("submit", (event) => { event.preventDefault(); this.silence(event.target); });
    }

    stop() {
      this.told.disconnect();
      this.drawn.disconnect();
      this.backtest.stop();
    }

    pulsed(told) {
      if (this.root.dataset.stamp === told.stamp) return;
      this.root.dataset.stamp = told.stamp;
      this.reread();
    }

    reread() { v.tellDash("settings-stamp", Date.now()); }

    drawSilences() {
      const silences = JSON.parse(this.muted.dataset.silences);
      this.muted.querySelector(".silences").innerHTML = v.acts.silenceList(silences);
      this.muted.querySelector(".none").hidden = silences.length > 0;
      v.writeTimes(this.muted);
    }

    clicked(event) {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.try) this.backtest.add(JSON.parse(button.dataset.try));
      else if (button.dataset.test) this.test(button);
      else if (button.dataset.forget) this.forget(button);
      else if (button.dataset.unsilence) this.change(() => v.send("DELETE", `silences/${button.dataset.unsilence}`));
    }

    async silence(form) {
      let asked;
      try { asked = v.acts.readSilence(form); } catch (error) { this.fail(v.escape(error.message)); return; }
      if (await this.change(() => v.send("POST", "silences", asked))) { form.reset(); this.muted.querySelector(".silencing").open = false; }
    }

    async change(send) {
      this.fail("");
      try {
        await send();
        this.reread();
        return true;
      } catch (error) {
        this.fail(v.acts.complaint(error));
        if (!error.status) this.reread();
        return false;
      }
    }

    fail(html) { this.muted.querySelector(".failed").innerHTML = html; }

    async forget(button) {
      try {
        await v.send("DELETE", `channels/${encodeURIComponent(button.dataset.forget)}`);
        this.reread();
        v.poll();
      } catch (error) { this.say(button.dataset.forget, "failed", v.acts.complaint(error)); }
    }

    say(name, kind, html) {
      this.tested.set(name, { kind, html });
      this.tell();
    }

    /** Writes what came of tests under their channels, again whenever Dash has drawn them anew. */
    tell() {
      for (const said of this.root.querySelectorAll("[data-said-of]")) {
        const { kind, html } = this.tested.get(said.dataset.saidOf) || {};
        if (!html || (said.dataset.html === html && said.textContent)) continue;
        said.dataset.html = html;
        said.innerHTML = ` ${html}`;
        said.className = `tested ${kind}`;
      }
    }

    /** Sends a test message and says whether it arrived. */
    async test(button) {
      if (button.getAttribute("aria-busy") === "true") return;
      const name = button.dataset.test;
      button.setAttribute("aria-busy", "true");
      this.say(name, "dim", "Sending");
      try {
        const answer = await v.send("POST", `channels/${encodeURIComponent(name)}/test`);
        const took = answer.latency_ms == null ? "" : ` in ${v.integer(Math.round(answer.latency_ms))} ms`;
        this.say(name, answer.delivered ? "good" : "failed", v.escape(answer.delivered ? `Arrived${took}. ${answer.error || ""}` : `Did not arrive: ${answer.error}`));
        if (answer.delivered) this.reread();
      } catch (error) { this.say(name, "failed", v.acts.complaint(error)); }
      button.setAttribute("aria-busy", "false");
    }
  }

  v.page("settings", (root) => new Settings(root));
})();
