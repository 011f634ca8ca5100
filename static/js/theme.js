// Runs before the first paint: the chosen theme without a flash, and the person's time zone.
(() => {
  try {
    const theme = localStorage.getItem("hermes:theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* private mode: the system's theme */ }
  try {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (zone && !document.cookie.includes(`tz=${zone}`)) document.cookie = `tz=${zone};path=/;max-age=31536000;samesite=lax`;
  } catch { /* the server's zone */ }
})();
