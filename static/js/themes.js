// The switch between the system's theme, light and dark.
const root = document.documentElement;

function mark() {
  for (const button of document.querySelectorAll("[data-theme-set]")) {
    button.setAttribute("aria-pressed", String(button.dataset.themeSet === (root.dataset.theme || "system")));
  }
}

export function themes() {
  document.addEventListener("click", (event) => {
    const theme = event.target.closest("[data-theme-set]")?.dataset.themeSet;
    if (!theme) return;
    if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
    try { localStorage.setItem("hermes:theme", theme); } catch { /* lasts as long as the page */ }
    mark();
  });
  mark();
}
