// The sign-in page.
import { themes } from "./themes.js";

themes();
document.querySelector("[data-reveal]")?.addEventListener("click", (event) => {
  const button = event.currentTarget, field = button.previousElementSibling;
  const shown = field.type === "password";
  field.type = shown ? "text" : "password";
  button.setAttribute("aria-pressed", String(shown));
});
