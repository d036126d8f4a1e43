/* A project's history: marks on runs, kept in the address across the pages of its table, to compare them. */
(function () {
  "use strict";
  const v = vitals;
  const MOST = 20;

  v.page("project", (root) => {
    const marked = new Set(v.address.get("mark").split(",").filter(Boolean).map(decodeURIComponent));
    const button = root.querySelector("#project-compare");
    const tell = () => {
      if (!button) return;
      button.disabled = marked.size < 2;
      button.textContent = marked.size > 1 ? `Compare ${marked.size}` : "Compare";
    };
    for (const place of root.querySelectorAll("[data-markable]")) {
      const { markable, name } = place.dataset;
      place.innerHTML = `<input type="checkbox" aria-label="Mark ${v.escape(name)}"${marked.has(markable) ? " checked" : ""}>`;
      place.firstChild.addEventListener("change", (event) => {
        if (event.target.checked && marked.size >= MOST) {
          event.target.checked = false;
          v.toast(`At most ${MOST} runs are compared.`);
          return;
        }
        event.target.checked ? marked.add(markable) : marked.delete(markable);
        v.address.set({ mark: [...marked].map(encodeURIComponent).join(",") });
        tell();
      });
    }
    tell();
    button?.addEventListener("click", () => v.go(`${v.base}compare?runs=${[...marked].map(encodeURIComponent).join(",")}`));
    root.addEventListener("keydown", (event) => {
      const row = event.target.closest("tr[data-stop]");
      if (!row || event.target !== row) return;
      if (event.key === "Enter") row.querySelector("a").click();
      if (event.key === "x") row.querySelector("input").click();
    });
    return {};
  });
})();
