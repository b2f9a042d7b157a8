// Numbers that change by themselves: one stream of samples for each tab that is looked at.
(() => {
  "use strict";
  const all = (selector) => [...document.querySelectorAll(selector)];
  const count = (value) => (value == null ? "–" : Math.round(value).toLocaleString("en-US"));
  const rate = (value) => (value >= 10 || value === 0 ? count(value) : value.toFixed(1));
  const age = (seconds) => {
    if (seconds == null) return "–";
    if (seconds < 1) return "< 1 s";
    for (const [limit, unit, name] of [[120, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"]]) {
      if (seconds < limit) return `${Math.round(seconds / unit)} ${name}`;
    }
    return `${Math.round(seconds / 86400)} d`;
  };
  const figures = (box) => ({
    received_rate: rate(box.per_second.received),
    delivered_rate: rate(box.per_second.delivered),
    retried_rate: rate(box.per_second.retried),
    ready: count(box.ready),
    claimed: count(box.claimed),
    waiting: count(box.waiting),
    suspended: count(box.suspended),
    unrouted: count(box.unrouted),
    instances: count(box.instances),
    suspended_instances: count(box.suspended_instances),
    suspended_all: count(box.suspended + box.unrouted), // as many as the page of suspended messages lists
    received_rate_more: `${count(box.total.received)} in all`,
    delivered_rate_more: `${count(box.total.delivered)} in all`,
    ready_more: box.ready ? `the oldest for ${age(box.oldest_seconds)}` : "nothing to deliver",
    instances_more: `${count(box.suspended_instances)} suspended`,
    unread: count(box.unread),
    oldest: age(box.oldest_seconds),
    received_total: count(box.total.received),
    delivered_total: count(box.total.delivered),
  });
  const rowsOf = (sample) => {
    const rows = {};
    for (const host of sample.box.hosts) {
      rows[`host ${host.name}`] = { ready: count(host.ready), in_hand: count(host.in_hand), waiting: count(host.waiting), suspended: count(host.suspended), oldest: age(host.oldest_seconds) };
    }
    for (const each of sample.box.suspensions) {
      rows[`code ${each.code} ${each.kind}`] = { count: count(each.count), oldest: age(each.oldest_seconds) };
    }
    for (const port of sample.details.services) {
      rows[`port ${port.name}`] = {
        rate: rate(port.delivered_per_second), delivered: count(port.delivered), ready: count(port.ready + port.claimed),
        waiting: count(port.waiting), suspended: count(port.suspended + port.suspended_instances), oldest: age(port.oldest_seconds),
      };
    }
    return rows;
  };
  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const fade = (cell) => cell.classList.toggle("zero", cell.textContent === "0" || cell.textContent === "–");
  const show = (sample) => {
    const values = figures(sample.box);
    for (const element of all("[data-live]")) {
      const text = values[element.dataset.live];
      if (text !== undefined) write(element, text === element.dataset.empty ? "" : text);
    }
    const rows = rowsOf(sample);
    for (const row of all("[data-live-row]")) {
      const cells = rows[row.dataset.liveRow];
      if (cells) for (const cell of row.querySelectorAll("[data-cell]")) write(cell, cells[cell.dataset.cell]);
    }
    all("[data-cell]").forEach(fade);
    for (const figure of all("[data-alarm]")) figure.classList.toggle("bad", values[figure.dataset.alarm] !== "0");
    if (document.querySelector("[data-first-sample]")) location.reload();
    tell("");
    state(sample.age_seconds > 30 ? `Nobody samples: this is ${age(sample.age_seconds)} old` : "Live", sample.age_seconds > 30);
  };
  const state = (text, off) => {
    for (const element of all("[data-live-state]")) write(element, text);
    for (const element of all("[data-live-pulse]")) element.classList.toggle("off", off);
  };

  // Why nothing is live, as a sentence of its own where the page has room for one.
  const tell = (text) => {
    for (const notice of all("[data-live-notice]")) {
      notice.hidden = text === "";
      write(notice.querySelector("[data-text]"), text);
    }
  };

  // A hidden tab lets go of its stream: browsers keep few connections to one server.
  let stream = null;
  const open = () => {
    if (stream || document.hidden || !document.querySelector("[data-live]")) return;
    stream = new EventSource("/api/v1/live");
    stream.addEventListener("sample", (event) => show(JSON.parse(event.data)));
    stream.addEventListener("away", (event) => {
      state("Not live", true);
      tell(event.data);
    });
    stream.addEventListener("error", () => state("Reconnecting", true));
  };
  const close = () => {
    stream?.close();
    stream = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  all("[data-cell]").forEach(fade);
  open();
})();
