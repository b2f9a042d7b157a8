// What every page does in the browser: theme, times, keys, live numbers, choosing rows. Pages work without it.
(() => {
  "use strict";
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const kept = (name) => localStorage.getItem(`crossdock.${name}`);
  const keep = (name, value) => localStorage.setItem(`crossdock.${name}`, value);

  // Theme
  const setTheme = (theme) => {
    document.documentElement.dataset.theme = theme;
    keep("theme", theme);
    document.dispatchEvent(new Event("crossdock:theme"));
  };
  const switchTheme = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

  // Times
  const two = (number) => String(number).padStart(2, "0");
  const localText = (at, seconds) =>
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}` +
    (seconds ? `:${two(at.getSeconds())}` : "");
  const utcText = (at, seconds) => at.toISOString().slice(0, seconds ? 19 : 16).replace("T", " ");
  const showTimes = (inside = document) => {
    const local = kept("zone") === "local";
    for (const element of all("time[datetime]", inside)) {
      const at = new Date(element.dateTime), seconds = element.dataset.seconds === "1";
      element.textContent = local ? localText(at, seconds) : utcText(at, seconds);
      element.title = `${utcText(at, true)} UTC`;
    }
    for (const element of all("[data-at]", inside)) {
      const at = new Date(element.dataset.at);
      element.textContent = (local ? localText(at, true) : utcText(at, true)).slice(11);
    }
    for (const element of all("[data-zone]")) element.textContent = local ? "Local" : "UTC";
  };
  const switchZone = () => {
    keep("zone", kept("zone") === "local" ? "utc" : "local");
    showTimes();
    document.dispatchEvent(new Event("crossdock:zone"));
  };

  // Dialogs
  let waiting = null;
  const confirmFirst = (form, text, button) => {
    waiting = { form, button };
    document.getElementById("confirm-text").textContent = text;
    document.getElementById("confirm").showModal();
  };
  const confirmed = () => {
    document.getElementById("confirm").close();
    const { form, button } = waiting;
    form.dataset.confirmed = "1";
    form.requestSubmit(button ?? undefined);
  };
  document.addEventListener("submit", (event) => {
    const form = event.target, text = event.submitter?.dataset.confirm ?? form.dataset.confirm;
    if (text && !form.dataset.confirmed) {
      event.preventDefault();
      event.stopPropagation();
      confirmFirst(form, text, event.submitter);
    }
  }, true);

  const acts = {
    theme: switchTheme,
    zone: switchZone,
    help: () => document.getElementById("help").showModal(),
    close: (button) => button.closest("dialog").close(),
    confirmed,
    menu: (button) => {
      const open = document.getElementById("side").classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
    },
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-act]");
    if (button && acts[button.dataset.act]) acts[button.dataset.act](button);
  });

  // Rows: j and k go through them, x chooses, Enter opens
  const rows = () => all("[data-rows] > tr, [data-rows] > li").filter((row) => row.querySelector("a, input"));
  const move = (by) => {
    const list = rows(), now = list.findIndex((row) => row.classList.contains("at"));
    const next = list[Math.min(Math.max(now + by, 0), list.length - 1)];
    if (!next) return;
    if (now >= 0) list[now].classList.remove("at");
    next.classList.add("at");
    next.scrollIntoView({ block: "nearest" });
  };
  const current = () => rows().find((row) => row.classList.contains("at"));
  const places = { o: "/", m: "/messages", s: "/suspended", p: "/ports", i: "/instances", d: "/plan", h: "/hosts", a: "/audit" };
  let going = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input:not([type=checkbox]), textarea, select") || event.target.isContentEditable;
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (going && Date.now() - going < 1500 && places[event.key]) {
      location.href = places[event.key];
      return;
    }
    going = event.key === "g" ? Date.now() : 0;
    const keys = {
      "/": () => {
        const field = document.querySelector("[data-search]");
        if (field) field.focus();
        else location.href = "/messages";
      },
      j: () => move(1),
      k: () => move(-1),
      x: () => current()?.querySelector("input[type=checkbox]")?.click(),
      Enter: () => !event.target.closest("a, button, summary, input") && current()?.querySelector("a[href]")?.click(),
      t: switchTheme,
      u: switchZone,
      "?": acts.help,
    };
    if (keys[event.key]) {
      if (event.key !== "Enter") event.preventDefault();
      keys[event.key]();
    }
  });

  // Choosing rows for an act
  const showChosen = () => {
    for (const form of all("form[data-chooses]")) {
      const boxes = all("[data-rows] input[type=checkbox]", form), chosen = boxes.filter((box) => box.checked);
      const bar = form.querySelector("[data-chosen-bar]");
      if (bar) bar.hidden = chosen.length === 0;
      for (const text of all("[data-chosen]", form)) text.textContent = `${chosen.length} chosen`;
    }
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-choose-all]")) {
      for (const box of all("[data-rows] input[type=checkbox]", event.target.form)) box.checked = event.target.checked;
    }
    showChosen();
  });

  // Forms that ask again as soon as a choice is made
  for (const field of all("[data-submits]")) field.addEventListener("change", () => field.form.requestSubmit());

  // On a telephone a picture that is wider than the screen begins at what it is about
  for (const picture of all(".picture")) {
    const box = picture.querySelector(".box.this");
    if (box && picture.clientWidth < 600 && picture.scrollWidth > picture.clientWidth) picture.scrollLeft = box.x.baseVal.value - 4;
  }

  // Where a picture goes on beyond its edge, the edge fades
  const fadeEdges = (picture) => {
    picture.classList.toggle("goes-on-right", picture.scrollLeft + picture.clientWidth < picture.scrollWidth - 2);
    picture.classList.toggle("goes-on-left", picture.scrollLeft > 2);
  };
  for (const picture of all(".picture")) {
    picture.addEventListener("scroll", () => fadeEdges(picture), { passive: true });
    fadeEdges(picture);
  }
  addEventListener("resize", () => all(".picture").forEach(fadeEdges));

  const refresh = (inside) => {
    showTimes(inside);
    showChosen();
  };
  document.addEventListener("htmx:after:swap", () => refresh(document));
  refresh(document);
})();
