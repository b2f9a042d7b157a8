// Charts of minutes with uPlot. The points are in the page; a table beside says the same without a picture.
(() => {
  "use strict";
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const two = (number) => String(number).padStart(2, "0");
  const clock = (seconds, utc) => {
    const at = new Date(seconds * 1000);
    return utc ? at.toISOString().slice(11, 16) : `${two(at.getHours())}:${two(at.getMinutes())}`;
  };
  const made = new Map();
  const draw = (element) => {
    made.get(element)?.destroy();
    const points = JSON.parse(element.dataset.points), names = JSON.parse(element.dataset.names);
    const utc = localStorage.getItem("crossdock.zone") !== "local";
    const axis = { stroke: colour("--muted"), font: `11px ${colour("--font")}`, grid: { stroke: colour("--chart-grid"), width: 1 }, ticks: { show: false } };
    made.set(element, new uPlot({
      width: element.clientWidth - 24,
      height: 200,
      legend: { show: false },
      cursor: { y: false, points: { size: 7 } },
      axes: [{ ...axis, gap: 6, size: 30, values: (_, splits) => splits.map((each) => clock(each, utc)) }, { ...axis, size: 48, values: (_, splits) => splits.map((each) => (each % 1 ? "" : each.toLocaleString("en-US"))) }],
      scales: { y: { range: (_, __, high) => [0, Math.max(high * 1.12, 4)] } },
      series: [{}, ...names.map((name, place) => {
        const line = colour(`--chart-${place + 1}`);
        return { label: name, stroke: line, width: 1.75, fill: place === 0 ? `${line}14` : undefined, points: { show: points[0].length < 3 } };
      })],
      hooks: { setCursor: [(plot) => tell(element, plot, names)] },
    }, points, element));
  };
  const tell = (element, plot, names) => {
    const place = plot.cursor.idx, target = document.getElementById(element.dataset.tells);
    if (!target) return;
    if (place == null) {
      target.textContent = target.dataset.otherwise;
      return;
    }
    const at = clock(plot.data[0][place], localStorage.getItem("crossdock.zone") !== "local");
    target.textContent = `${at}: ` + names.map((name, row) => `${name} ${plot.data[row + 1][place] ?? 0}`).join(", ");
  };
  const drawAll = () => document.querySelectorAll("[data-points]").forEach(draw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) drawAll();
    width = innerWidth;
  });
  document.addEventListener("crossdock:theme", drawAll);
  document.addEventListener("crossdock:zone", drawAll);
  drawAll();
})();
