/* The incident page: the run's charts around the onset, and the panel of what can be done. */
(function () {
  "use strict";
  const v = vitals;
  const REREAD_MS = 15000;

  class Incident extends v.Board {
    constructor(root) {
      super(root);
      const read = (name) => JSON.parse(root.dataset[name]);
      this.panel = new v.acts.Panel(root.querySelector("#acts"), { scopes: read("scopes"), outcomes: read("outcomes") }, () => this.reread());
      this.now = root.querySelector("#incident-now");
      this.told = new MutationObserver(() => this.panel.take(JSON.parse(this.now.dataset.now)));
      this.told.observe(this.now, { attributes: true });
      this.panel.take(JSON.parse(this.now.dataset.now));
      this.readAt = Date.now();
      if (this.axis === "step") this.zoom(...read("window"));
      this.openNamed();
    }

    stop() {
      super.stop();
      this.told.disconnect();
    }

    /* The head of the page is drawn by Dash, and its charts are chosen for the incident. */
    head() {}
    reload() {}

    async poll() {
      const before = this.lastStep;
      const answer = await super.poll();
      if (this.stopped) return answer;
            if (before && this.lastStep !== before && Date.now() - this.readAt > REREAD_MS) this.reread();
      return answer;
    }

    pulsed(told) {
      if (this.root.dataset.stamp === told.stamp) return;
      this.root.dataset.stamp = told.stamp;
      this.reread();
    }

    reread() {
      this.readAt = Date.now();
      v.tellDash("incident-stamp", this.readAt);
    }

    /** An address that ends in #alert-7 names a row of the timeline. */
    openNamed() {
      const row = location.hash.startsWith("#alert-") && this.root.querySelector(location.hash);
      if (!row) return;
      row.open = true;
      row.scrollIntoView({ block: "center" });
    }
  }

  v.page("incident", (root) => new Incident(root));
})();
