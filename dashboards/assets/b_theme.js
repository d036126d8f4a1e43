/* Theme (system, light, dark) and the keyboard. */
(function () {
  "use strict";
  const CHOICES = ["system", "light", "dark"];
  const chosen = () => document.documentElement.dataset.theme || "system";

  function choose(theme) {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("vitals-theme", theme); } catch (error) { /* storage may be forbidden: the choice then lasts for this page */ }
    const button = document.getElementById("theme-button");
    if (button) button.setAttribute("aria-label", `Theme: ${theme}`);
    vitals.toast(`Theme: ${theme}`);
    document.dispatchEvent(new CustomEvent("vitals-theme"));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("vitals-theme")));

  const KEYS = [
    ["g f", "fleet"], ["g i", "incidents"], ["g c", "compare"], ["g d", "deliveries"], ["g s", "settings"], ["/", "search runs or charts"], ["j k", "next, previous run or section"],
    ["Enter", "open the run"], ["v", "saved views of the fleet"], ["x", "mark a run, select an incident"], ["t", "change the theme"], ["?", "this list"],
  ];

  function help() {
    const open = document.getElementById("keys");
    if (open) { open.close(); return; }
    const dialog = document.createElement("dialog");
    dialog.id = "keys";
    dialog.innerHTML = `<h2>Keyboard</h2><dl>${KEYS.map(([key, text]) =>
      `<div><dt>${key.split(" ").map((k) => `<kbd>${k}</kbd>`).join(" ")}</dt><dd>${text}</dd></div>`).join("")}</dl>
      <form method="dialog"><button class="button">Close</button></form>`;
    dialog.addEventListener("close", () => dialog.remove());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    document.body.append(dialog);
    dialog.showModal();
  }

  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    if (event.target.closest("#theme-button")) choose(CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length]);
    if (event.target.closest("#help-button")) help();
  });

  /** Sections and rows the keys j and k walk through. */
  const stops = () => [...document.querySelectorAll("#page [data-stop], #page section[aria-label], #page article.alert")].filter((node) => node.offsetParent);

  function walk(by) {
    const all = stops();
    if (!all.length) return;
    const current = all.indexOf(document.activeElement.closest("[data-stop], section[aria-label], article.alert"));
    const next = all[Math.min(all.length - 1, Math.max(0, current < 0 ? 0 : current + by))];
    if (!next.hasAttribute("tabindex")) next.tabIndex = -1;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  /** Where g and a letter lead, under the path of the pages. */
  const PLACES = { f: "", a: "alerts", i: "alerts", c: "compare", d: "deliveries", s: "settings" };
  const go = (letter) => vitals.go(vitals.base + PLACES[letter]);

  /** Calls `act` with the node once a page has drawn it, for at most five seconds. */
  function whenThere(place, act) {
    const watch = new MutationObserver(() => {
      const node = document.querySelector(place);
      if (node) { watch.disconnect(); act(node); }
    });
    watch.observe(document.body, { childList: true, subtree: true });
    setTimeout(() => watch.disconnect(), 5000);
  }

  /** Opens the menu of saved views and stands on its first. */
  function views() {
    const menu = document.getElementById("fleet-views");
    if (!menu) return;
    menu.open = true;
    menu.querySelector("li a").focus();
  }

  let prefix = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, [contenteditable]")) return;
    const key = event.key;
    if (key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) { menu.open = false; menu.querySelector("summary").focus(); }
    if (Date.now() - prefix < 1200 && key in PLACES) { prefix = 0; go(key); return; }
    prefix = key === "g" ? Date.now() : 0;
    if (key === "j") walk(1);
    else if (key === "k") walk(-1);
    else if (key === "t") choose(CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length]);
    else if (key === "?") help();
    else if (key === "v") views();
    else if (key === "/") {
      const field = document.querySelector("#fleet-search, #chart-search");
      event.preventDefault();
      if (field) field.focus();
      else { go("f"); whenThere("#fleet-search", (found) => found.focus()); }
    }
  });
})();
