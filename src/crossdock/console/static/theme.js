// Runs before anything is drawn: the theme that somebody chose, or else what the system prefers.
(() => {
  const chosen = localStorage.getItem("crossdock.theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
