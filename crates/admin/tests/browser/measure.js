(() => {
  const root = top.document.documentElement;
  // A mark that no server knows of: it is lost if the element is replaced rather than updated.
  document.querySelector("article").marked = true;
  const sought = new URLSearchParams(location.search).get("type");
  if (sought) {
    const search = document.querySelector("input[type=search]");
    search.value = sought;
    search.dispatchEvent(new Event("input"));
  }
  setInterval(() => {
    const wide = [...document.querySelectorAll("body *")].filter((node) => {
      // What scrolls within its own box is not the page's overflow.
      if (node.closest("pre, caption, svg, thead")) return false;
      const box = node.getBoundingClientRect();
      return box.width > 0 && (box.right > innerWidth + 0.5 || box.left < -0.5);
    });
    Object.assign(root.dataset, {
      width: innerWidth,
      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      wide: wide.map((node) => node.outerHTML.slice(0, 80)).join(" | "),
      ground: getComputedStyle(document.body).backgroundColor,
      ink: getComputedStyle(document.body).color,
      row: getComputedStyle(document.querySelector("tbody tr")).display,
      kept: document.querySelector("article").marked === true,
      articles: document.querySelectorAll("article").length,
      query: location.search,
    });
  }, 100);
})();
