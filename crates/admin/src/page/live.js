"use strict";
(() => {
  const pulse = document.getElementById("pulse");
  const search = document.querySelector("input[type=search]");
  const live = document.getElementById("live");
  let timer = 0, asked = 0, failures = 0;

  // Moves what differs in `to` into `from`, so that selection, focus and scrolling outlive an update.
  const morph = (from, to) => {
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) return from.replaceWith(to);
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE && node.dataset.key) || null;
    const keyed = new Map();
    for (const node of from.childNodes) if (keyOf(node)) keyed.set(keyOf(node), node);
    let at = from.firstChild;
    for (const node of [...to.childNodes]) {
      const key = keyOf(node);
      const same = key ? keyed.get(key) : at && !keyOf(at) ? at : null;
      if (!same) from.insertBefore(node, at);
      else {
        if (same === at) at = at.nextSibling;
        else from.insertBefore(same, at);
        morph(same, node);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };

  const say = (text, state) => {
    if (pulse.textContent !== text) pulse.textContent = text;
    pulse.dataset.state = state;
  };

  const update = async () => {
    clearTimeout(timer);
    const ticket = ++asked;
    const query = new URLSearchParams({ part: "live" });
    if (search.value.trim()) query.set("q", search.value.trim());
    try {
      const answer = await fetch("?" + query, { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(answer.statusText);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      if (ticket !== asked) return;
      morph(live, fresh);
      document.title = live.dataset.title;
      failures = 0;
      say("live", "live");
    } catch {
      if (ticket !== asked) return;
      failures += 1;
      say("no answer, trying again", "lost");
    }
    // Nobody looks at a hidden page; one that lost its server asks less and less often.
    if (!document.hidden) timer = setTimeout(update, Math.min(1000 * 2 ** Math.max(0, failures - 1), 15000));
  };

  search.addEventListener("input", () => {
    const sought = search.value.trim();
    history.replaceState(null, "", sought ? "?q=" + encodeURIComponent(sought) : location.pathname);
    clearTimeout(timer);
    timer = setTimeout(update, 120);
  });
  search.form.addEventListener("submit", (event) => { event.preventDefault(); update(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
  say("live", "live");
  timer = setTimeout(update, 1000);
})();
