// One kernel at a time: what limits it, the smallest changes, and the curves, as explain and occupancy compute them.
const kLimits = {
  warps: "Warps",
  blocks: "Blocks",
  registers: "Registers",
  shared_mem: "Shared memory",
  barriers: "Barriers",
  cluster: "Cluster"
};
const kCurves = {
  block: "Threads per block",
  regs: "Registers per thread",
  smem: "Shared memory per block (bytes)"
};
let chosenKernel = 0, charts = [];

function limitBars(now) {
  const limits = Object.entries(now.limit_blocks).filter(([, blocks]) => known(blocks));
  const most = Math.min(Math.max(...limits.map(([, b]) => b), 1), 4 * Math.max(now.max_active_blocks, 1));
  return limits.sort((a, b) => a[1] - b[1]).map(([name, blocks]) => {
    const binds = now.limiting_resources.includes(name), bar = el("i");
    bar.style.width = 100 * Math.min(blocks, most) / most + "%";
    bar.style.background = binds ? "var(--copy-out)" : "var(--bar)";
    return el(
        "div", {class: "limit" + (binds ? " binds" : ""), "data-limit": name, "data-value": blocks},
        el("span", null, kLimits[name] || name), el("div", {class: "bar"}, bar),
        el("span", {class: "num"}, plural(blocks, "block")));
  });
}

// A point holds from the one before it to its own x; uPlot draws that as steps that end at a point.
function drawCurve(host, curve) {
  const xs = [], ys = [];
  curve.points.forEach((point, i) => {
    if (i === 0 && point.x > curve.least) {
      xs.push(curve.least);
      ys.push(100 * point.occupancy);
    }
    xs.push(point.x);
    ys.push(100 * point.occupancy);
  });
  const note = host.querySelector("p"), text = css("dim"), grid = {stroke: css("grid"), width: 1};
  const axis = {stroke: text, grid, ticks: grid, font: "12px system-ui, sans-serif"};
  const tell = x => {
    const point = curve.points.find(p => p.x >= x);
    note.textContent = !point ?
        "" :
        `at ${count(x)}: ${percent(point.occupancy)}, ${plural(point.max_active_blocks, "block")}` +
            (point.limiting_resources.length ?
                 ", limited by " + point.limiting_resources.map(l => (kLimits[l] || l).toLowerCase()).join(", ") :
                 "");
  };
  const chart = new uPlot(
      {
        width: Math.max(host.clientWidth - 20, 200),
        height: 190,
        legend: {show: false},
        cursor: {y: false, drag: {x: false, y: false}},
        scales: {x: {time: false}, y: {range: [0, 105]}},
        axes: [
          {
            ...axis,
            values: (u, ticks) => ticks.map(t => t >= 1024 && curve.over === "smem" ? t / 1024 + "K" : t),
            incrs: curve.over === "smem" ? [8192, 16384, 32768, 65536, 131072] :
                curve.over === "block"   ? [128, 256] :
                                           [32, 64]
          },
          {...axis, size: 48, values: (u, ticks) => ticks.map(t => t + "%"), splits: () => [0, 25, 50, 75, 100]}
        ],
        series: [
          {}, {
            stroke: css("k0"),
            width: 2,
            fill: css("k0") + "22",
            paths: uPlot.paths.stepped({align: -1}),
            points: {show: false}
          }
        ],
        hooks: {
          draw: [u => {
            const x = Math.round(u.valToPos(curve.now, "x", true)), {top, height} = u.bbox;
            u.ctx.save();
            u.ctx.strokeStyle = css("copy-out");
            u.ctx.lineWidth = 2 * devicePixelRatio;
            u.ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
            u.ctx.beginPath();
            u.ctx.moveTo(x, top);
            u.ctx.lineTo(x, top + height);
            u.ctx.stroke();
            u.ctx.restore();
          }],
          setCursor: [u => tell(u.cursor.left >= 0 ? Math.round(u.posToVal(u.cursor.left, "x")) : curve.now)],
        },
      },
      [xs, ys], host);
  tell(curve.now);
  return chart;
}

function kernelPanel(kernel) {
  const {words, now} = kernel, out = [el("h3", {class: "kernel-title"}, kernel.name)];
  out.push(el("p", {class: "dim"}, words.numbers), el("p", {class: "dim"}, words.launch));
  out.push(
      el("p", null, el("b", null, words.occupancy ? words.occupancy + "." : "Theoretical occupancy is not known."),
         words.best ? " " + words.best + "." : ""));
  if (known(now.max_active_blocks)) out.push(...limitBars(now));
  const list = items => el(
      "ul", {class: "advice"},
      items.map(lines => el("li", null, lines.map((line, i) => i === 0 ? line : el("div", {class: "from"}, line)))));
  if (words.findings.length) out.push(el("h3", null, "What stands out"), list(words.findings));
  if (words.advice_heading) out.push(el("h3", null, words.advice_heading));
  if (words.advice.length) out.push(list(words.advice));
  if (kernel.curves.length) {
    out.push(
        el("h3", null, "What if: occupancy over one of them, the others as recorded (dashed: now)"),
        el("div", {class: "charts"},
           kernel.curves.map(
               curve => el(
                   "div", {class: "chart", "data-over": curve.over, "data-now": curve.now},
                   el("h4", null, kCurves[curve.over]), el("p")))),
        el("p", {class: "dim"},
           "By the occupancy model, for this board. Fewer registers may spill; whether more blocks are faster only a " +
                   "measurement tells."));
  }
  return el("div", {id: "kernel-panel", "data-label": kernel.label}, out);
}

function showKernel(at) {
  chosenKernel = at;
  document.querySelectorAll(".choices button").forEach((b, i) => b.setAttribute("aria-pressed", i === at));
  const kernel = explained.kernels[at], panel = kernelPanel(kernel);
  $("kernel-panel").replaceWith(panel);
  drawCharts();
}

function drawCharts() {
  charts.forEach(chart => chart.destroy());
  const hosts = document.querySelectorAll("#kernel-panel .chart");
  charts = [...hosts].map((host, i) => drawCurve(host, explained.kernels[chosenKernel].curves[i]));
}

function showOccupancy() {
  const body = $("occupancy-body");
  if (!explained || explained.kernels.length === 0) {
    body.append(
        el("p", {class: "dim"},
           explained ? "No kernel was launched." :
                       "This gpuflight was built without the CUDA headers, so without the occupancy model."));
    return;
  }
  const choices = explained.kernels.map(
      (k, i) => el(
          "button", {type: "button", "aria-pressed": i === 0, onclick: () => showKernel(i)},
          el("span", {class: "what", title: k.name}, k.short_name),
          el("span", {class: "small"},
             `${percent(k.share)} of ${explained.share_of.replace("_", " ").replace("gpu", "GPU")}, occupancy ${
                 percent(k.now.occupancy)}`),
          el("span", {class: "small"}, `block ${k.launch.block}, ${count(k.launch.num_regs)} registers`)));
  if (explained.left_out.configs > 0)
    choices.push(
        el("p", {class: "small"},
           `${plural(explained.left_out.configs, "more configuration")} with ${
               percent(explained.left_out.share)} of it: gpuflight explain --all`));
  body.append(el("div", {class: "split"}, el("div", {class: "choices"}, choices), el("div", {id: "kernel-panel"})));
  showKernel(0);
}
