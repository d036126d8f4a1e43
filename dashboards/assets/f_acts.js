/* What people do about incidents: shown at once, sent once, and taken back on the page when it was not done. */
vitals.acts = (function () {
  "use strict";
  const v = vitals;
  const SPANS = [[3600, "1 hour"], [14400, "4 hours"], [86400, "1 day"], [259200, "3 days"], [604800, "1 week"], ["", "until a time"]];

  /** The name that goes with whatever this person does, kept by the browser. */
  const author = {
    get: () => { try { return localStorage.getItem("vitals-author") || ""; } catch (error) { return ""; } },
    set(name) { try { localStorage.setItem("vitals-author", name.trim()); } catch (error) { /* storage may be forbidden: the name is then asked for again */ } },
  };

  /** Why something was not done, as HTML. Without an answer it may have been done all the same. */
  function complaint(error) {
    if (error.status === 401) return `You are not logged in, and nothing was changed. <a href="/login?next=${encodeURIComponent(location.pathname)}">Log in</a>`;
    if (error.status) return `Not done. ${v.escape(error.message)}`;
    return "The collector did not answer, so this may not have been done. Look again before you repeat it.";
  }

  const option = (value, text, chosen) => `<option value="${v.escape(value)}"${chosen ? " selected" : ""}>${v.escape(text)}</option>`;
  const nameField = () => `<label class="ask beside"><span>Your name</span><span class="field"><input class="author" autocomplete="name" maxlength="200" placeholder="somebody" value="${v.escape(author.get())}"></span></label>`;

  const scopeField = (scopes) => `<label class="ask"><span>Tell nobody of</span><span class="field"><select name="scope">${scopes.map(([text, matcher]) => option(JSON.stringify(matcher), text)).join("")}</select></span></label>`;
  const matcherFields = (names) => names.map((name) => `<label class="ask"><span>${name}</span><span class="field"><input data-matcher="${name}" placeholder="any, or a pattern such as a*" maxlength="500"></span></label>`).join("");

  /** The form that silences what `fields` say. */
  function silenceForm(fields) {
    return `<form class="silence-form" novalidate>
      ${fields}
      <label class="ask"><span>for</span><span class="field"><select name="span">${SPANS.map(([seconds, text]) => option(seconds, text)).join("")}</select></span></label>
      <label class="ask" hidden><span>until</span><span class="field"><input type="datetime-local" name="until"></span></label>
      <label class="ask"><span>because</span><span class="field"><input name="reason" maxlength="500" placeholder="a reason that others understand"></span></label>
      <button class="button">Silence</button></form>`;
  }

  /** What a filled form asks for; throws an Error that names what is missing. */
  function readSilence(form) {
    const { scope, span, until, reason } = form.elements;
    const written = [...form.querySelectorAll("[data-matcher]")].map((field) => [field.dataset.matcher, field.value.trim()]).filter(([, pattern]) => pattern);
    const matcher = scope ? JSON.parse(scope.value) : Object.fromEntries(written);
    if (!Object.keys(matcher).length) throw new Error("Say what to silence; project * is everything.");
    const end = span.value ? v.now() + Number(span.value) : new Date(until.value).getTime() / 1000;
    if (!Number.isFinite(end)) throw new Error("Say until when.");
    if (!reason.value.trim()) throw new Error("Say why, so that others know.");
    return { matcher, until: end, reason: reason.value, author: author.get() };
  }

  document.addEventListener("input", (event) => { if (event.target.matches("input.author")) author.set(event.target.value); });
  document.addEventListener("change", (event) => {
    if (!event.target.matches(".silence-form [name=span]")) return;
    event.target.form.elements.until.closest("label").hidden = event.target.value !== "";
  });

  const matcherText = (matcher) => Object.entries(matcher).map(([name, pattern]) => `${name} ${pattern}`).join(", ");

  /** Silences in force; one that is not stored yet cannot be ended. */
  const silenceList = (silences) => silences.map((each) => `<div class="silence"><p><b>Silenced</b> until <time datetime="${new Date(each.until * 1000).toISOString()}"></time> by ${v.escape(each.author)}: ${v.escape(each.reason)}</p>
    <p class="dim">${v.escape(matcherText(each.matcher))}</p>${each.id ? `<button type="button" class="button small" data-unsilence="${each.id}">End this silence</button>` : ""}</div>`).join("");

  /** The panel of one incident. `changed` is called when something was done. */
  class Panel {
    constructor(root, { scopes, outcomes }, changed) {
      this.root = root;
      this.changed = changed;
      this.stored = {};
      this.ahead = null;
      root.innerHTML = `
        <p class="now" role="status"></p>
        <label class="ask"><span>What you have to say</span><textarea class="words" rows="2" maxlength="10000" placeholder="Goes with whatever you press"></textarea></label>
        ${nameField()}
        <div class="tools"><button type="button" class="button strong" data-act="acknowledge">Acknowledge</button><button type="button" class="button" data-act="resolve">Resolve</button><button type="button" class="button" data-act="comment">Comment</button></div>
        <p class="failed" role="alert"></p>
        <div class="ask beside"><span id="mark-label">The alarm was</span><div class="chips" role="group" aria-labelledby="mark-label">
          <button type="button" class="chip" data-mark="true">True</button><button type="button" class="chip" data-mark="false">False</button></div></div>
        <label class="ask beside"><span>The run came to</span><span class="field"><select class="outcome">${option("", "not said")}${outcomes.map((each) => option(each, each)).join("")}</select></span></label>
        <details class="silencing"><summary>Silence</summary>${silenceForm(scopeField(scopes))}</details>
        <div class="silences"></div>`;
      root.addEventListener("click", (event) => this.clicked(event));
      root.addEventListener("change", (event) => { if (event.target.matches(".outcome")) this.outcome(event.target.value); });
      root.addEventListener("submit", (event) => { event.preventDefault(); this.silence(event.target); });
      root.addEventListener("keydown", (event) => { if (event.target.matches(".words") && event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.act("comment"); });
    }

    node(place) { return this.root.querySelector(place); }

    /** What is stored, as the server tells it. */
    take(stored) {
      this.stored = stored;
      this.ahead = null;
      this.draw();
    }

    draw() {
      const told = { ...this.stored, ...this.ahead };
      const over = told.state === "resolved";
      const who = told.state === "acknowledged" ? `<b>${v.escape(told.by || "somebody")}</b> is on it${told.at ? `, taken on <time datetime="${new Date(told.at * 1000).toISOString()}" data-age="1"></time>` : ""}.`
        : over ? `It is over${told.resolved_step == null ? "" : `, since step <b>${v.integer(told.resolved_step)}</b>`}.` : "<b>Nobody is on it.</b>";
      const html = `${who}${this.ahead ? ' <span class="dim">Saving</span>' : ""}`;
      const now = this.node(".now");
      if (now.dataset.html !== html) { now.innerHTML = html; now.dataset.html = html; v.writeTimes(now); }
      this.root.dataset.state = told.state;
      const taken = this.node("[data-act=acknowledge], [data-act=release]");
      taken.dataset.act = told.state === "acknowledged" ? "release" : "acknowledge";
      taken.textContent = told.state === "acknowledged" ? "Take back" : "Acknowledge";
      for (const button of this.root.querySelectorAll("[data-act=acknowledge], [data-act=resolve]")) button.setAttribute("aria-disabled", String(over));
      for (const button of this.root.querySelectorAll("[data-mark]")) button.setAttribute("aria-pressed", String(told.mark === button.dataset.mark));
      const outcome = this.node(".outcome");
      if (outcome.value !== (told.outcome || "")) outcome.value = told.outcome || "";
      const silences = silenceList(told.silences || []);
      const place = this.node(".silences");
      if (place.dataset.html !== silences) { place.innerHTML = silences; place.dataset.html = silences; v.writeTimes(place); }
    }

    clicked(event) {
      const button = event.target.closest("button");
      if (!button || button.getAttribute("aria-disabled") === "true") return;
      if (button.dataset.act) this.act(button.dataset.act);
      else if (button.dataset.mark) this.mark(button.getAttribute("aria-pressed") === "true" ? null : button.dataset.mark);
      else if (button.dataset.unsilence) this.unsilence(Number(button.dataset.unsilence));
    }

    async act(name) {
      const words = this.node(".words");
      const shown = {
        acknowledge: { state: "acknowledged", by: author.get() || "somebody", at: v.now() },
        release: { state: "open", by: null, at: null },
        resolve: { state: "resolved", resolved_step: null },
      }[name] || {};
      if (name === "comment" && !words.value.trim()) { this.fail("Write what you have to say first."); words.focus(); return; }
      const said = words.value;
      if (await this.does(shown, () => v.send("POST", `incidents/${this.stored.uid}/${name}`, { author: author.get(), text: said })) && words.value === said) words.value = "";
    }

    mark(verdict) {
      return this.does({ mark: verdict }, () => v.send("POST", `incidents/${this.stored.uid}/mark`, { verdict, author: author.get(), text: "" }));
    }

    outcome(value) {
      return this.does({ outcome: value || null }, () => v.send("POST", `runs/${encodeURIComponent(this.stored.run)}/outcome`, { outcome: value || null }));
    }

    async silence(form) {
      let asked;
      try { asked = readSilence(form); } catch (error) { this.fail(v.escape(error.message)); return; }
      const shown = { silences: [...(this.stored.silences || []), { id: 0, author: asked.author || "somebody", ...asked }] };
      if (await this.does(shown, () => v.send("POST", "silences", asked))) { form.reset(); this.node(".silencing").open = false; }
    }

    unsilence(key) {
      return this.does({ silences: this.stored.silences.filter((each) => each.id !== key) }, () => v.send("DELETE", `silences/${key}`));
    }

    /** Shows what will be, sends it, and shows what is again if it was not done. One thing at a time. */
    async does(shown, send) {
      if (this.busy) return false;
      this.busy = true;
      this.ahead = shown;
      this.fail("");
      this.draw();
      try {
        await send();
        this.changed();
        return true;
      } catch (error) {
        this.ahead = null;
        this.fail(complaint(error));
        this.draw();
        if (!error.status) this.changed();
        return false;
      } finally {
        this.busy = false;
      }
    }

    fail(html) { this.node(".failed").innerHTML = html; }
  }

  return { Panel, author, complaint, silenceForm, scopeField, matcherFields, readSilence, silenceList, nameField };
})();
