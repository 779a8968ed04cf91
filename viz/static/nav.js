// The pages share names in their query strings: going to another one takes the view along.
export function wireNav(root) {
  for (const link of root.querySelectorAll("nav a[data-page]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (link.getAttribute("aria-current")) return;
      location.href = new URL(link.getAttribute("href") + location.search, document.baseURI).href;
    });
  }
}
