/* The inbox: incidents that wait for somebody, filtered by the address, and what can be done about several at once. */
(function () {
  "use strict";
  const v = vitals;
  const PAGE = 50;
  const STATES = [["", "Unresolved"], ["open", "Nobody on it"], ["acknowledged", "Acknowledged"], ["resolved", "Resolved"], ["any", "All"]];
  const FILTERS = ["state", "severity", "project", "detector", "q", "run"];
  const DONE = { acknowledge: "acknowledged", resolve: "resolved", silence: "silenced" };

  /** A name as a pattern that fits only itself. */
  const literal = (text) => text.replace(/[[*?]/g, "[$&]");
  const option = ([value, text], chosen) => `<option value="${v.escape(value)}"${value === chosen ? " selected" : ""}>${v.escape(text)}</option>`;
  const choice = (key, label, values) => `<label class="field select"><span class="hidden">${label}</span><select data-filter="${key}">${values.map((each) => option(each, v.address.get(key))).join("")}</select></label>`;

  const ARRIVED = { sent: "was told", pending: "is being told", failed: "was not reached yet", refused: "was not told" };
  const told = (told) => Object.entries(told).map(([channel, state]) =>
    `<span class="delivery delivery-${state}"><span class="icon" aria-hidden="true"></span><span><b>${v.escape(channel)}</b> ${ARRIVED[state]}</span></span>`).join("");

  function line(each) {
    const place = `${v.base}incident/${each.uid}`;
    const over = each.state === "resolved";
    const state = over ? "Resolved" : each.state === "acknowledged" ? `${each.acknowledged_by || "Somebody"} is on it` : "Nobody is on it";
    const more = each.alerts.length - 1;
    const facts = [
      `<a href="${v.base}run/${encodeURIComponent(each.run)}">${v.escape(each.run_name)}</a>`, `<span>${v.escape(each.project)}</span>`,
      `<span>since step <b>${v.integer(each.began)}</b>${over && each.resolved_step != null ? ` to <b>${v.integer(each.resolved_step)}</b>` : ""}</span>`,
      ...(more > 0 ? [`<span>and ${v.counted(more, "more alert")}</span>`] : []),
      ...(each.mark ? [`<span>${each.mark} alarm</span>`] : []),
      `<time datetime="${new Date(each.opened_at * 1000).toISOString()}" data-age="1"></time>`,
    ];
    return `<input type="checkbox" data-check aria-label="Select ${v.escape(each.lead)}, ${v.escape(each.run_name)}">
      <div class="case-main"><div class="case-head">${v.pill(each.severity)}<h2><a href="${place}">${v.escape(each.lead)}</a></h2><span class="state state-${each.state}">${v.escape(state)}</span>${each.saving ? '<span class="dim">Saving</span>' : ""}</div>
      <div class="facts-line dim">${facts.join("")}</div><p class="case-why">${v.escape(each.evidence)}</p>${over ? "" : `<p class="case-do">${v.escape(each.advice)}</p>`}</div>
      <div class="case-told">${told(each.told) || `<span class="dim">Nobody was told${each.muted ? `: ${v.escape(each.muted)}` : ""}</span>`}</div>`;
  }

  class Inbox {
    constructor(root) {
      this.root = root;
      this.box = root.querySelector("#inbox");
      this.cases = new Map();
      this.ahead = new Map();
      this.marked = new Set();
      this.rows = new Map();
      this.most = PAGE;
      this.due = true;
      const names = (key, all) => [["", all], ...JSON.parse(this.box.dataset[key]).map((each) => [each, each])];
      this.box.innerHTML = `
        <div class="filters"><div class="chips" role="group" aria-label="State">${STATES.map(([value, text]) => `<button type="button" class="chip" data-state="${value}">${text}</button>`).join("")}</div>
          <div class="tools">
            <label class="field"><span class="glyph glyph-search" aria-hidden="true"></span><span class="hidden">Search incidents</span><input id="inbox-search" type="search" placeholder="Search run, project, detector, text" autocomplete="off" spellcheck="false" value="${v.escape(v.address.get("q"))}"></label>
            ${choice("severity", "Severity", [["", "Any severity"], ["critical", "Critical"], ["warning", "Warning"]])}${choice("project", "Project", names("projects", "All projects"))}${choice("detector", "Detector", names("detectors", "Any detector"))}
          </div></div>
        <p class="one-run" hidden></p>
        <div class="inbox-head"><label><input type="checkbox" data-all aria-label="Select all that are shown"> <span class="shown" role="status"></span></label></div>
        <div class="cases"></div><div class="note" role="status"><div class="loading">Loading</div></div>
        <p><button type="button" class="button" data-more hidden>Show more</button></p>
        <section class="bulk" aria-label="What to do about those selected" hidden>
          <b class="how-many"></b><label class="field words"><span class="hidden">What you have to say</span><input class="said" maxlength="10000" placeholder="What you have to say"></label>
          <label class="field"><span class="hidden">Your name</span><input class="author" autocomplete="name" maxlength="200" placeholder="Your name" value="${v.escape(v.acts.author.get())}"></label>
          <div class="tools"><button type="button" class="button strong" data-bulk="acknowledge">Acknowledge</button><button type="button" class="button" data-bulk="resolve">Resolve</button><button type="button" class="button" data-silence aria-expanded="false">Silence</button><button type="button" class="button" data-none>Clear</button></div>
          <div class="muting" hidden>${v.acts.silenceForm(v.acts.scopeField([["every alarm of these runs", { run: "*" }]]))}</div>
        </section>
        <div class="failed" role="alert"></div>`;
      this.list = this.node(".cases");
      this.box.addEventListener("click", (event) => this.clicked(event));
      this.box.addEventListener("change", (event) => this.altered(event));
      this.box.addEventListener("input", (event) => { if (event.target.id === "inbox-search") this.search(event.target.value); });
      this.box.addEventListener("submit", (event) => { event.preventDefault(); this.silence(event.target); });
      this.box.addEventListener("keydown", (event) => this.key(event));
    }

    node(place) { return this.box.querySelector(place); }

    filter() { return Object.fromEntries(FILTERS.map((key) => [key, v.address.get(key)])); }

    pulsed(told) {
      if (this.root.dataset.stamp === told.stamp) return;
      this.root.dataset.stamp = told.stamp;
      this.reread();
    }

    reread() {
      this.due = true;
      v.poll();
    }

    /** Reads the list when something changed. */
    async poll() {
      const filter = this.filter();
      const asked = JSON.stringify([filter, this.most]);
      if (!this.due && asked === this.asked) return null;
      this.due = false;
      const state = { "": "unresolved", any: "" }[filter.state] ?? filter.state;
      try {
        const found = await v.api("incidents", { ...filter, state, brief: "true", limit: this.most + 1 });
        if (asked !== JSON.stringify([this.filter(), this.most])) { this.due = true; return null; }
        this.asked = asked;
        this.more = found.length > this.most;
        this.cases = new Map(found.slice(0, this.most).map((each) => [each.uid, each]));
        for (const uid of this.marked) if (!this.cases.has(uid)) this.marked.delete(uid);
        if (!this.busy) this.ahead.clear();
        this.draw();
      } catch (error) {
        this.due = true;
        this.trouble(error);
        throw error;
      }
      return null;
    }

    trouble(error) {
      if (this.cases.size) return;
      const why = error.status ? v.acts.complaint(error) : "The collector does not answer. The list comes as soon as it does.";
      this.say(`<div class="empty"><h2>The incidents could not be read</h2><p>${why}</p></div>`);
    }

    say(html) {
      const note = this.node(".note");
      if (note.dataset.html !== html) { note.innerHTML = html; note.dataset.html = html; }
    }

    draw() {
      for (const [uid, row] of this.rows) if (!this.cases.has(uid)) { row.remove(); this.rows.delete(uid); }
      let place = this.list.firstElementChild;
      for (const [uid, stored] of this.cases) {
        const each = { ...stored, ...this.ahead.get(uid) };
        let row = this.rows.get(uid);
        if (!row) {
          row = document.createElement("article");
          Object.assign(row.dataset, { uid, stop: "" });
          row.tabIndex = -1;
          this.rows.set(uid, row);
        }
        const html = line(each);
        row.className = `card case edge-${each.state === "resolved" ? "resolved" : each.severity}`;
        if (row.dataset.html !== html) { row.innerHTML = html; row.dataset.html = html; }
        row.querySelector("[data-check]").checked = this.marked.has(uid);
        if (row !== place) this.list.insertBefore(row, place);
        else place = place.nextElementSibling;
      }
      v.writeTimes(this.list);
      this.frame();
    }

    /** Everything around the rows. */
    frame() {
      const filter = this.filter();
      for (const chip of this.box.querySelectorAll("[data-state]")) chip.setAttribute("aria-pressed", String(chip.dataset.state === filter.state));
      const count = this.cases.size;
      this.node(".inbox-head").hidden = count === 0;
      const shown = v.counted(count, this.more ? "newest incident" : "incident");
      if (this.node(".shown").textContent !== shown) this.node(".shown").textContent = shown;
      const all = this.node("[data-all]");
      all.checked = count > 0 && this.marked.size === count;
      all.indeterminate = this.marked.size > 0 && this.marked.size < count;
      this.node("[data-more]").hidden = !this.more;
      const one = this.node(".one-run");
      one.hidden = !filter.run;
      if (filter.run) one.innerHTML = `Of the run <a href="${v.base}run/${encodeURIComponent(filter.run)}">${v.escape(filter.run)}</a> only. <button type="button" class="button small" data-every-run>Show every run</button>`;
      this.node(".bulk").hidden = this.marked.size === 0;
      this.node(".how-many").textContent = `${v.integer(this.marked.size)} selected`;
      const narrowed = FILTERS.some((key) => filter[key]);
      this.say(count ? "" : narrowed ? '<div class="empty"><h2>No incident matches</h2><p>Change the search or the filters. <button type="button" class="button" data-clear>Show all that is unresolved</button></p></div>'
        : '<div class="empty"><h2>Nothing is wrong</h2><p>No incident waits for anybody. Alarms that begin together on one run appear here as one incident.</p></div>');
    }

    change(changes) {
      v.address.set(changes);
      this.most = PAGE;
      this.marked.clear();
      this.reread();
      this.frame();
    }

    search(text) {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.change({ q: text.trim() }), 200);
    }

    altered(event) {
      const { target } = event;
      if (target.matches("[data-check]")) this.mark(target.closest(".case").dataset.uid, target.checked);
      else if (target.matches("[data-all]")) { this.marked = new Set(target.checked ? this.cases.keys() : []); this.draw(); }
      else if (target.dataset.filter) this.change({ [target.dataset.filter]: target.value });
    }

    mark(uid, on) {
      on ? this.marked.add(uid) : this.marked.delete(uid);
      this.draw();
    }

    clicked(event) {
      const { target } = event;
      const button = target.closest("button");
      const row = target.closest(".case");
      if (button?.dataset.state !== undefined) this.change({ state: button.dataset.state });
      else if (button?.matches("[data-clear]")) { for (const field of this.box.querySelectorAll(".filters input, .filters select")) field.value = ""; this.change(Object.fromEntries(FILTERS.map((key) => [key, ""]))); }
      else if (button?.matches("[data-every-run]")) this.change({ run: "" });
      else if (button?.matches("[data-more]")) { this.most += PAGE; this.reread(); }
      else if (button?.matches("[data-none]")) { this.marked.clear(); this.draw(); }
      else if (button?.matches("[data-silence]")) this.unfold(this.node(".muting").hidden);
      else if (button?.dataset.bulk) this.act(button.dataset.bulk);
      else if (row && !target.closest("a, input, button") && !String(getSelection())) row.querySelector("h2 a").click();
    }

    key(event) {
      const row = event.target.closest(".case");
      if (!row || event.target !== row) {
        if (event.target.id === "inbox-search" && event.key === "Escape") event.target.blur();
        return;
      }
      if (event.key === "Enter") row.querySelector("h2 a").click();
      if (event.key === "x") this.mark(row.dataset.uid, !this.marked.has(row.dataset.uid));
    }

    unfold(open) {
      this.node(".muting").hidden = !open;
      this.node("[data-silence]").setAttribute("aria-expanded", String(open));
    }

    act(name) {
      const said = this.node(".said");
      const author = v.acts.author.get();
      const shown = name === "acknowledge" ? { state: "acknowledged", acknowledged_by: author || "somebody" } : { state: "resolved" };
      const words = said.value;
      return this.each(name, shown, (each) => v.send("POST", `incidents/${each.uid}/${name}`, { author, text: words }), () => { said.value = ""; });
    }

    silence(form) {
      let asked;
      try { asked = v.acts.readSilence(form); } catch (error) { this.node(".failed").textContent = error.message; return; }
      const runs = new Map();
      const once = (each) => {
        if (!runs.has(each.run)) runs.set(each.run, v.send("POST", "silences", { ...asked, matcher: { run: literal(each.run) } }));
        return runs.get(each.run);
      };
      this.each("silence", {}, once, () => { form.reset(); this.unfold(false); });
    }

    /** Does the same to each that is selected, one after the other; those that it was not done to stay selected, each with its reason. */
    async each(name, shown, send, whenDone) {
      if (this.busy) return;
      this.busy = true;
      const chosen = [...this.marked].map((uid) => this.cases.get(uid));
      const failures = [];
      this.node(".failed").innerHTML = "";
      for (const each of chosen) this.ahead.set(each.uid, { ...shown, saving: true });
      this.draw();
      for (const each of chosen) {
        try {
          await send(each);
          this.ahead.set(each.uid, shown);
          this.marked.delete(each.uid);
        } catch (error) {
          this.ahead.delete(each.uid);
          failures.push(`<li>${v.escape(each.run_name)}: ${v.acts.complaint(error)}</li>`);
        }
        this.draw();
      }
      this.busy = false;
      const well = chosen.length - failures.length;
      if (failures.length) this.node(".failed").innerHTML = `<p>${well} of ${chosen.length} ${DONE[name]}.</p><ul>${failures.join("")}</ul>`;
      else {
        v.toast(`${v.counted(well, "incident")} ${DONE[name]}.`);
        whenDone();
        this.node("[data-all]").focus();
      }
      this.reread();
    }
  }

  v.page("inbox", (root) => new Inbox(root));
})();
