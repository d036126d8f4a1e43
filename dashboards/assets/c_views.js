/* Saved views of the fleet: search, filters, order, groups and which of them are folded, under a name. They are kept in this browser; the address holds all of it. */
vitals.views = (function () {
  "use strict";
  const v = vitals;
  const KEYS = ["q", "project", "state", "tag", "severity", "sort", "group", "fold"];
  const PLACE = "vitals-views";

  /** What the address shows, without a name, always in the same order. */
  function shown() {
    const params = new URLSearchParams();
    for (const key of KEYS) if (v.address.get(key)) params.set(key, v.address.get(key));
    return params.toString();
  }

  /** Names and queries, in the order in which they were saved. */
  function kept() {
    try {
      const found = JSON.parse(localStorage.getItem(PLACE) || "[]");
      return Array.isArray(found) ? found.filter((each) => each && typeof each.name === "string" && typeof each.query === "string") : [];
    } catch (error) { return []; }
  }

  function keep(list) {
    try { localStorage.setItem(PLACE, JSON.stringify(list)); } catch (error) { v.toast("This browser keeps nothing; the address still holds the view."); }
  }

  const search = (name, query) => `?${query}${query ? "&" : ""}view=${encodeURIComponent(name)}`;

  /** The menu in a <details>; open(search) shows another view. */
  return class Views {
    constructor(menu, open) {
      this.menu = menu;
      this.open = open;
      menu.innerHTML = `<summary class="button"></summary><div>
        <ul></ul>
        <form><label class="field"><span class="hidden">Name of the view</span><input name="view" maxlength="60" placeholder="Name what is shown" autocomplete="off" required></label><button class="button">Save</button></form>
        <button type="button" data-copy>Copy a link to what is shown</button></div>`;
      menu.addEventListener("click", (event) => this.clicked(event));
      menu.addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
      menu.addEventListener("toggle", () => { if (menu.open) menu.querySelector("input").value = v.address.get("view"); });
      menu.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); this.save(menu.querySelector("input").value.trim()); });
      this.draw();
    }

    close() {
      this.menu.open = false;
      this.menu.querySelector("summary").focus();
    }

    draw() {
      const [name, query, list] = [v.address.get("view"), shown(), kept()];
      const mine = list.find((each) => each.name === name);
      const title = !name ? "Views" : mine && mine.query !== query ? `${name}, changed` : name;
      const summary = this.menu.querySelector("summary");
      if (summary.textContent !== title) summary.textContent = title;
      const rows = list.map((each) => `<li><a href="${v.base}${v.escape(search(each.name, each.query))}"${each === mine && each.query === query ? ' aria-current="true"' : ""}>${v.escape(each.name)}</a>
        <button type="button" data-drop="${v.escape(each.name)}" aria-label="Forget ${v.escape(each.name)}" title="Forget">×</button></li>`);
      const html = `<li><a href="${v.base}"${name || query ? "" : ' aria-current="true"'}>Every run</a></li>${rows.join("")}${name && !mine ? `<li><span>${v.escape(name)}, not saved here</span></li>` : ""}`;
      const place = this.menu.querySelector("ul");
      if (place.dataset.html !== html) { place.innerHTML = html; place.dataset.html = html; }
    }

    save(name) {
      if (!name) return;
      const [list, view] = [kept(), { name, query: shown() }];
      const known = list.findIndex((each) => each.name === name);
      keep(known < 0 ? [...list, view] : list.with(known, view));
      v.address.set({ view: name });
      this.draw();
      v.toast(`Saved: ${name}`);
      this.close();
    }

    clicked(event) {
      const link = event.target.closest("li a");
      const drop = event.target.closest("[data-drop]");
      if (link && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.button) {
        event.preventDefault();
        this.close();
        this.open(new URL(link.href).search);
      } else if (drop) {
        keep(kept().filter((each) => each.name !== drop.dataset.drop));
        this.draw();
        this.menu.querySelector("li a").focus();
      } else if (event.target.closest("[data-copy]")) this.copy();
    }

    async copy() {
      const [name, query] = [v.address.get("view"), shown()];
      try {
        await navigator.clipboard.writeText(location.origin + v.base + (name ? search(name, query) : query && `?${query}`));
        v.toast("The link is copied.");
      } catch (error) { v.toast("The browser forbids copying; the address above is the link."); }
    }
  };
})();
