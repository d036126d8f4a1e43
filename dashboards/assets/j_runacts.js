/* What people tell a run: what it came to, another name, and requests that it obeys when it next sends. */
vitals.runActs = (function () {
  "use strict";
  const v = vitals;
  const option = (value, text, chosen) => `<option value="${v.escape(value)}"${value === chosen ? " selected" : ""}>${v.escape(text)}</option>`;
  const named = (kind) => kind.charAt(0).toUpperCase() + kind.slice(1);

  class RunActs {
    constructor(root, uid) {
      this.root = root;
      this.uid = uid;
      this.told = JSON.parse(root.dataset.acts);
      const { told } = this;
      root.innerHTML = `<details class="menu"><summary class="button">Tell this run</summary><div>
        <label class="ask"><span>It came to</span><span class="field"><select class="outcome">${option("", "not said", told.outcome)}${told.outcomes.map((each) => option(each, each, told.outcome)).join("")}</select></span></label>
        <form class="ask" novalidate><label for="run-label">It is shown as</label><span class="naming"><span class="field"><input id="run-label" maxlength="200" autocomplete="off" placeholder="${v.escape(told.name)}" value="${v.escape(told.label)}"></span><button class="button">Save</button></span></form>
        <div class="asking"></div><p class="failed" role="alert"></p></div></details>`;
      root.addEventListener("change", (event) => { if (event.target.matches(".outcome")) this.outcome(event.target.value); });
      root.addEventListener("submit", (event) => { event.preventDefault(); this.label(event.target.querySelector("input").value.trim()); });
      root.addEventListener("click", (event) => { const button = event.target.closest("[data-ask]"); if (button) this.ask(button); });
      this.draw();
    }

    draw() {
      const { accepts, asked, running } = this.told;
      const buttons = accepts.map((kind) => `<button type="button" class="button" data-ask="${kind}"${asked.includes(kind) ? " disabled" : ""}>${named(kind)}</button>`);
      const none = '<p class="dim">It takes no requests: start it with <code>accepts=["stop"]</code> to stop it from here.</p>';
      const waits = asked.length ? `<p role="status">Asked to ${asked.join(" and ")}; it obeys when it next sends.</p>` : "";
      this.root.querySelector(".asking").innerHTML = running ? (buttons.length ? `<div class="tools">${buttons.join("")}</div>${waits}` : none) : "";
    }

    /** Sends one thing; says why when it was not done. */
    async tell(path, body) {
      const failed = this.root.querySelector(".failed");
      failed.textContent = "";
      try {
        return await v.send("POST", `runs/${encodeURIComponent(this.uid)}/${path}`, body);
      } catch (error) {
        failed.innerHTML = v.acts.complaint(error);
        return null;
      }
    }

    async outcome(value) {
      const done = await this.tell("outcome", { outcome: value || null });
      if (done) { this.told.outcome = value; v.toast(value ? `Kept: it came to ${value}.` : "Kept: not said what it came to."); }
      else this.root.querySelector(".outcome").value = this.told.outcome;
    }

    async label(text) {
      const done = await this.tell("label", { label: text || null });
      if (!done) return;
      this.told.label = text;
      const title = this.root.parentElement.querySelector("h1");
      title.textContent = text || this.told.name;
      document.title = `${title.textContent} · rlvitals`;
      v.toast("Kept.");
    }

    /** A run that stops is gone: that needs a second press. */
    async ask(button) {
      const kind = button.dataset.ask;
      if (kind === "stop" && !button.dataset.sure) {
        button.dataset.sure = "1";
        button.textContent = "Really stop it";
        return;
      }
      const done = await this.tell("requests", { kind });
      if (done) this.told.asked = done.requests;
      this.draw();
    }
  }

  return (root) => { const place = root.querySelector("#run-acts"); if (place) new RunActs(place, root.dataset.run); };
})();
