/* The frame of the browser's part: the API, formats, the poll loop and which page is open. Pages register themselves with vitals.page(). */
window.vitals = (function () {
  "use strict";

  const meta = (name) => document.querySelector(`meta[name=${name}]`).content;
  const base = meta("vitals-base");
  const POLL_MS = 2000;
  const PULSE_MS = 10000;
  const BEHIND_S = 10;
  const controllers = {};

  class Refused extends Error {
    constructor(status, message) { super(message); this.status = status; }
  }

  /** A route's answer. Rejects with Refused for one that is not 2xx and with TypeError when the server does not answer. */
  async function ask(path, params, sent) {
    const url = new URL(`/api/v1/${path}`, location.origin);
    for (const [key, value] of Object.entries(params || {})) if (value !== "" && value != null) url.searchParams.set(key, value);
    const answer = await fetch(url, { signal: AbortSignal.timeout(15000), credentials: "same-origin", ...sent });
    if (!answer.ok) {
      const detail = await answer.json().catch(() => ({}));
      throw new Refused(answer.status, typeof detail.error === "string" ? detail.error : `The server answered ${answer.status}.`);
    }
    return answer;
  }

  /** JSON of a route. */
  const api = async (path, params, sent) => (await ask(path, params, sent)).json();

  /** Changes something. */
  const send = (method, path, body) => api(path, null, { method, headers: { "Content-Type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) });

  const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, notation: "standard" });
  const COMPACT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, notation: "compact" });

  const THREE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const brief = (value) => (typeof value === "number" && Math.abs(value) < 1e4 && (value === 0 || Math.abs(value) >= 1e-3) ? THREE.format(value) : number(value));

  /** A number for reading: four significant digits, SI-like from ten thousand on, scientific below a thousandth. */
  function number(value) {
    if (value == null) return "–";
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    if (size >= 1e15) return value.toExponential(2);
    if (size >= 1e4) return COMPACT.format(value);
    if (size !== 0 && size < 1e-3) return value.toExponential(2);
    return NUMBER.format(value);
  }

  const percent = (value) => (value == null ? "–" : `${NUMBER.format(Math.round(value * 1000) / 10)} %`);
  const integer = (value) => (value == null ? "–" : value.toLocaleString("en"));
  /** "1 run", "3 runs". */
  const counted = (number, one, many = `${one}s`) => `${integer(number)} ${number === 1 ? one : many}`;

  function duration(seconds) {
    const s = Math.max(0, seconds);
    if (s < 90) return `${Math.round(s)} s`;
    if (s < 5400) return `${Math.round(s / 60)} min`;
    if (s < 129600) return `${Math.round(s / 3600)} h`;
    return `${Math.round(s / 86400)} d`;
  }

  let skew = 0;
  const now = () => Date.now() / 1000 + skew;
  const age = (at) => (now() - at < 2 ? "just now" : `${duration(now() - at)} ago`);
  const clockTime = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
  const fullTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

  const dayTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  /** A time of today without its day. */
  const near = (at) => (at.toDateString() === new Date(now() * 1000).toDateString() ? dayTime : clockTime).format(at);

  /** Writes every <time> in the viewer's zone; those with data-age as an age, those with data-near without the day where that is today. */
  function writeTimes(root) {
    for (const node of root.querySelectorAll("time[datetime]")) {
      const at = new Date(node.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const text = node.dataset.age ? age(at / 1000) : node.dataset.near ? near(at) : clockTime.format(at);
      if (node.textContent !== text) node.textContent = text;
      if (!node.title) node.title = fullTime.format(at);
    }
  }

  const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  const escape = (text) => String(text).replace(/[&<>"']/g, (letter) => ESCAPES[letter]);

  const SEVERITIES = {
    critical: "Critical", warning: "Warning", watch: "Watch", "cannot judge": "Cannot judge", unknown: "Not judged yet", solved: "Solved", healthy: "Healthy",
  };
  const URGENCY = Object.keys(SEVERITIES);
  function pill(severity) {
    const known = severity in SEVERITIES ? severity : "unknown";
    return `<span class="pill sev-${known.replace(" ", "-")}"><span class="icon" aria-hidden="true"></span>${SEVERITIES[known]}</span>`;
  }

  /* The state of the connection, as one word that is always visible. */
  let lastAnswer = null;
  let failures = 0;
  let refusal = null;
  function tellLive() {
    const node = document.getElementById("live");
    if (!node) return;
    const behind = lastAnswer == null ? 0 : (Date.now() - lastAnswer) / 1000;
    let [kind, text] = ["live", "live"];
    if (refusal) [kind, text] = ["off", refusal === 401 || refusal === 403 ? "no permission" : "refused"];
    else if (failures >= 2) [kind, text] = ["off", "disconnected"];
    else if (lastAnswer == null) [kind, text] = ["wait", "connecting"];
    else if (behind > BEHIND_S) [kind, text] = ["wait", `behind ${duration(behind)}`];
    if (node.dataset.kind === kind && node.textContent === text) return;
    node.dataset.kind = kind;
    node.textContent = text;
  }

  let active = null;
  let timer = null;
  let polling = false;
  let again = false;

  /** One request for the whole page, again two seconds after its answer; none while the page is hidden. */
  async function poll() {
    clearTimeout(timer);
    if (document.hidden) return;
    if (polling) { again = true; return; }
    polling = true;
    again = false;
    const mine = active;
    try {
      const answers = [mine && mine.poll ? await mine.poll() : null, await pulse(mine)].filter(Boolean);
      for (const answer of answers) {
        if (answer.now) skew = answer.now - Date.now() / 1000;
      }
      lastAnswer = Date.now();
      failures = 0;
      refusal = null;
    } catch (error) {
      if (error instanceof Refused) refusal = error.status;
      else if (error instanceof TypeError || error.name === "TimeoutError" || error.name === "AbortError") failures += 1;
      else console.error(error);
    }
    polling = false;
    tellLive();
    if (mine !== active || again) return void poll();
    timer = setTimeout(poll, Math.min(POLL_MS * 2 ** Math.max(0, failures - 2), 16000));
  }

  let pulsed = 0;
  /** What is shown on every page: how many incidents nobody has resolved, and receivers that take nothing. A page with pulsed() hears of it at each poll, the others less often. */
  async function pulse(mine) {
    if (mine && !mine.pulsed && Date.now() - pulsed < PULSE_MS) return null;
    const told = await api("pulse");
    pulsed = Date.now();
    tellIncidents(told.incidents);
    tellChannels(told.channels);
    if (mine && mine === active && mine.pulsed) mine.pulsed(told);
    return told;
  }

  /** Says which receivers take nothing, and what to do. */
  function tellChannels(channels) {
    const node = document.getElementById("channel-trouble");
    if (!node) return;
    const html = channels.map((each) => {
      const waits = each.waiting ? ` ${counted(each.waiting, "message waits", "messages wait")}.` : "";
      const off = each.state === "disabled";
      const what = off ? "takes nothing: its address or our secret is wrong." : `has failed ${counted(each.failures, "time")} in a row.`;
      const next = off ? "Correct it, start the worker again, and send a test:" : "It is tried again by itself;";
      const why = each.last_error ? ` <span class="why">${escape(each.last_error)}</span>` : "";
      return `<p class="trouble-${each.state}"><span class="icon" aria-hidden="true"></span><span><b>${escape(each.name)}</b> ${what}${waits}${why} ${next} <a href="${base}settings#channels">settings</a>, <a href="${base}deliveries?channel=${encodeURIComponent(each.name)}">what was tried</a>.</span></p>`;
    }).join("");
    if (node.dataset.html !== html) { node.innerHTML = html; node.dataset.html = html; }
  }

  function tellIncidents(counts) {
    const node = document.getElementById("open-incidents");
    if (!node) return;
    const total = (counts.critical || 0) + (counts.warning || 0);
    node.hidden = total === 0;
    node.textContent = total;
    node.className = `count ${counts.critical ? "bad" : "some"}`;
    node.setAttribute("aria-label", counted(total, "open incident"));
  }

  /** Registers what drives the page whose root has data-page=name: create(root) returns {poll, stop}. */
  function page(name, create) { controllers[name] = create; }

  function follow() {
    const root = document.querySelector("#page > [data-page]");
    if (active ? active.place === root : !root) return;
    if (active && active.stop) active.stop();
    active = null;
    if (root) {
      const create = controllers[root.dataset.page];
      active = create ? create(root) : {};
      active.place = root;
      const title = root.querySelector("h1");
      if (title) document.title = `${title.textContent} · rlvitals`;
      markNavigation();
      arrive();
    }
    poll();
  }

  /** Scrolls to the section that the address names: it came too late for the browser, and links of the router do not try. */
  let arrived = "";
  function arrive() {
    const place = location.pathname + location.hash;
    if (place === arrived) return;
    arrived = place;
    const section = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (section) section.scrollIntoView();
    else window.scrollTo(0, 0);
  }

  function markNavigation() {
    const here = location.pathname.replace(/\/$/, "") || "/";
    for (const link of document.querySelectorAll(".bar nav a")) {
      const target = new URL(link.href).pathname.replace(/\/$/, "") || "/";
      const inside = (...places) => places.some((place) => here.startsWith(base + place));
      const home = target === "/" ? base === "/" : `${target}/` === base;
      if (target === here || (home && inside("run/", "project/")) || (target === `${base}alerts` && inside("incident/"))) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** Query parameters of the address; set() changes them without a new history entry. */
  const address = {
    get: (key) => new URLSearchParams(location.search).get(key) || "",
    set(changes) {
      const params = new URLSearchParams(location.search);
      for (const [key, value] of Object.entries(changes)) {
        if (value === "" || value == null) params.delete(key);
        else params.set(key, value);
      }
      const text = params.toString();
      history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : "") + location.hash);
    },
  };

  let toastTimer = null;
  function toast(text) {
    const node = document.getElementById("toast");
    if (!node) return;
    node.textContent = text;
    node.classList.add("shown");
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => node.classList.remove("shown"), 4000);
  }

  /** Hands a value to Dash, whose callbacks take it from there. */
  const tellDash = (id, data) => window.dash_clientside.set_props(id, { data });

  const guests = [];
  /** Calls act(node) for each node that matches, once it is there. */
  function arriving(selector, act) { guests.push([selector, act, new WeakSet()]); }
  function greet() {
    for (const [selector, act, met] of guests) for (const node of document.querySelectorAll(selector)) if (!met.has(node)) { met.add(node); act(node); }
  }

  /** Plain links inside the pages go through Dash's router, like its own. */
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#page a[href], #channel-trouble a[href]");
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !url.pathname.startsWith(base) || url.pathname.startsWith("/api/") || url.pathname === "/login" || (url.pathname === location.pathname && url.hash)) return;
    event.preventDefault();
    if (link.dataset.set) put(JSON.parse(link.dataset.set));
    else if (link.getAttribute("href") === "") location.reload();
    else if (url.href !== location.href) go(url.href);
  });

  /** Opens this page with parts of its address changed; the rest stays as it has become since the page was made. */
  function put(changes) {
    const url = new URL(location.href);
    for (const [key, value] of Object.entries(changes)) value ? url.searchParams.set(key, value) : url.searchParams.delete(key);
    if (url.href !== location.href) go(url.href);
  }

  /* A choice that is part of the address: its options are the server's, which of them is chosen the address says. */
  arriving("select[data-choice]", (field) => {
    field.value = field.dataset.chosen;
    if (field.selectedIndex < 0) field.selectedIndex = 0;
    field.addEventListener("change", () => put({ page: "", [field.dataset.choice]: field.value }));
  });

  /** Opens an address of ours without loading the page anew. */
  function go(href) {
    history.pushState({}, "", href);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  }

  /* Dash draws the page some time after this script ran, and again at each change of address. */
  let scheduled = false;
  new MutationObserver(() => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      follow();
      greet();
      writeTimes(document);
    });
  }).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["datetime"] });

  setInterval(() => {
    if (document.hidden) return;
    tellLive();
    writeTimes(document);
  }, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
  window.addEventListener("online", poll);

  return { base, ask, api, send, page, poll, go, arriving, number, brief, percent, integer, counted, duration, age, now, escape, pill, SEVERITIES, URGENCY, address, toast, tellDash, writeTimes, meta };
})();
