// The pages share names in their query strings: going to another one takes the view along.
export function wireNav(root, also = () => ({})) {
  for (const link of root.querySelectorAll("nav a[data-page]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (link.getAttribute("aria-current")) return;
      const query = new URLSearchParams(location.search);
      for (const [name, value] of Object.entries(also(link.dataset.page))) query.set(name, value); // what the other page calls it
      const text = query.toString();
      location.href = new URL(link.getAttribute("href") + (text ? "?" + text : ""), document.baseURI).href;
    });
  }
}
