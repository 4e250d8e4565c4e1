// What the parts of the page share: its data, elements, numbers as the command line prints them. All text goes into the
// page as text, never as markup: names come from a log and may hold anything.
"use strict";
const data = name => JSON.parse(document.getElementById("data-" + name).textContent);
const report = data("report"), analysis = data("findings"), explained = data("occupancy");
const shortNames = data("names");  // of the rows of report.groups
const $ = id => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// Three digits that count, as quantity.h prints them.
const digits3 = value => value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
const known = value => value !== null && value !== undefined;
function duration(ns) {
  if (!known(ns)) return "-";
  if (ns < 0) return "-" + duration(-ns);
  if (ns < 999.5) return ns.toFixed(0) + " ns";
  if (ns < 999.5e3) return digits3(ns / 1e3) + " us";
  if (ns < 999.5e6) return digits3(ns / 1e6) + " ms";
  if (ns < 120e9) return digits3(ns / 1e9) + " s";
  const seconds = Math.round(ns / 1e9);
  if (seconds < 7200) return Math.floor(seconds / 60) + " min " + seconds % 60 + " s";
  return Math.floor(seconds / 3600) + " h " + Math.floor(seconds / 60) % 60 + " min";
}
const count = value => known(value) ? Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",") : "-";
const percent = (ratio, decimals = 1) => known(ratio) && isFinite(ratio) ? (100 * ratio).toFixed(decimals) + "%" : "-";
function scaled(value, units, step, next) {
  let unit = 0;
  while (value >= next && unit + 1 < units.length) {
    value /= step;
    ++unit;
  }
  return (unit === 0 && step === 1024 || Number.isInteger(value) && step === 1024 ? value.toFixed(0) : digits3(value)) +
      " " + units[unit];
}
const bytes = value => known(value) ? scaled(value, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024, 1023.5) : "-";
const rate = value => known(value) ? scaled(value, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], 1000, 999.5) : "-";
function range(value, text = count) {
  if (!known(value)) return "-";
  return value.min === value.max ? text(value.min) : text(value.min) + ".." + text(value.max);
}
const plural = (n, word, words = word + "s") => count(n) + " " + (n === 1 ? word : words);
const sum = (list, get) => list.reduce((total, one) => total + (get(one) || 0), 0);

// A column: title, text of a row, what it sorts by (numbers: right), and what else its cell has.
function dataTable(table, columns, rows, options = {}) {
  let order = options.sort === undefined ? -1 : options.sort, down = true;
  const body = el("tbody"), heads = columns.map((column, i) => {
    const title = options.sortable ? el("button", {
      type: "button",
      title: column.what,
      onclick: () => {
        down = order === i ? !down : !column.words;
        order = i;
        fill();
      }
    },
                                        column.title) :
                                     column.title;
    return el(
        "th", {class: column.words ? null : "num", scope: "col", "aria-sort": options.sortable ? "none" : null}, title);
  });
  function fill() {
    const shown = rows.filter(row => !options.filter || options.filter(row));
    if (order >= 0) {
      const key = columns[order].key, sign = down ? -1 : 1;
      shown.sort((a, b) => {
        const x = key(a), y = key(b);
        if (!known(x) || !known(y)) return known(y) - known(x);  // what is not known stands last
        return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
      });
    }
    heads.forEach((head, i) => {
      if (options.sortable) head.setAttribute("aria-sort", i !== order ? "none" : down ? "descending" : "ascending");
    });
    body.replaceChildren(...shown.map(row => el("tr", options.row ? options.row(row) : null, columns.map(column => {
                                        const value = column.key ? column.key(row) : null;
                                        const cell = el("td", {
                                          class: column.words ? column.cls : "num",
                                          "data-key": column.id,
                                          "data-value": known(value) ? value : null
                                        });
                                        cell.append(column.text(row));
                                        if (column.finish) column.finish(cell, row);
                                        return cell;
                                      }))));
    if (options.filled) options.filled(shown.length, rows.length);
  }
  table.replaceChildren(el("thead", null, el("tr", null, heads)), body);
  fill();
  return fill;
}

// ---- what was recorded, and the numbers to know first ----
function logName(log) {
  const program = (log.program || log.path || "").split("/").pop();
  return (known(log.rank) && known(log.rank.RANK) ? "rank " + log.rank.RANK + ", " : "") + program +
      (known(log.pid) ? "." + log.pid : "");
}

function showHeader() {
  const first = report.logs[0], devices = new Map();
  for (const log of report.logs)
    for (const d of log.devices) devices.set(d.uuid || d.name + d.device, d);
  const command = first.args && first.args.length ? first.args.join(" ") : first.program || first.path;
  $("program").textContent = report.logs.length === 1 ? command :
                                                        plural(report.logs.length, "recording") + " of " + command;
  const facts = [];
  if (known(first.t0_unix_ns))
    facts.push(new Date(first.t0_unix_ns / 1e6).toISOString().slice(0, 19).replace("T", " ") + " UTC");
  if (first.host) facts.push("on " + first.host);
  for (const d of [...devices.values()].slice(0, 8)) {
    facts.push(`${d.name} (sm_${d.compute_capability.replace(".", "")}, ${d.sm_count} SMs)`);
  }
  if (first.timing) facts.push("GPU times: " + first.timing);
  facts.push(report.logs.length === 1 ? first.path : report.logs.length + " logs");
  $("facts").textContent = facts.join("  \u00b7  ");
  document.title = "gpuflight: " + logName(first);
}

function tile(id, name, value, raw, more, bad) {
  return el(
      "div", {class: "tile" + (bad ? " bad" : ""), id: "tile-" + id, "data-value": raw},
      el("div", {class: "name"}, name), el("div", {class: "value"}, value), el("div", {class: "more"}, more || ""));
}

function showSummary() {
  const {totals, device_times: devices, copies, logs} = report, tiles = [];
  const span = sum(devices, d => d.span_ns), busy = sum(devices, d => d.busy_ns), timed = devices.length > 0;
  const longest = Math.max(...logs.map(l => l.duration_ns));
  tiles.push(tile(
      "duration", logs.length > 1 ? "Longest recording" : "Recorded", duration(longest), longest,
      plural(logs.length, "process", "processes")));
  tiles.push(tile(
      "launches", "Kernel launches", count(totals.launches), totals.launches,
      `of ${plural(totals.kernels, "kernel")}`));
  if (totals.failed > 0)
    tiles.push(tile("failed", "Refused launches", count(totals.failed), totals.failed, "by the driver", true));
  if (totals.gpu)
    tiles.push(tile(
        "gpu", "Kernel time", duration(totals.gpu.total_ns), totals.gpu.total_ns,
        `median ${duration(totals.gpu.median_ns)}`));
  if (timed) {
    tiles.push(tile("busy", "GPU busy", percent(busy / span), busy, `of ${duration(span)}`));
    tiles.push(tile("idle", "GPU idle", duration(span - busy), sum(devices, d => d.idle_ns), "first to last work"));
    const copying = sum(devices, d => d.copy_busy_ns), beside = sum(devices, d => d.copy_beside_kernel_ns);
    tiles.push(tile(
        "overlap", "Copy overlap", copying > 0 ? percent(beside / copying) : "-", beside,
        `${duration(beside)} beside kernels`));
  }
  if (copies.length > 0)
    tiles.push(tile(
        "copied", "Copied", bytes(sum(copies, c => c.bytes)), sum(copies, c => c.bytes),
        plural(sum(copies, c => c.count), "copy", "copies")));
  const lost = sum(logs, l => l.ledger ? l.ledger.lost_total : 0);
  const told = logs.filter(l => l.ledger).length;
  tiles.push(tile(
      "lost", "Events lost", told === 0 ? "not said" : count(lost), lost,
      lost > 0               ? "see Losses" :
          told === 0         ? "no ledger in the log" :
          told < logs.length ? "not all logs say" :
                               "all are in the log",
      lost > 0));
  $("tiles").replaceChildren(...tiles);
}

// ---- findings, as analyze words them ----
const kCosts = {
  lost: "lost ",
  bound: "at most ",
  at_stake: "at stake ",
  none: ""
};
function showFindings() {
  const list = analysis.findings.map(f => {
    const several = analysis.logs.length > 1 && analysis.logs[f.log];
    const where = [known(f.device) ? "device " + f.device : null, several ? logName(analysis.logs[f.log]) : null];
    const cost = f.cost_kind === "none" ? "no time named" :
                                          `${kCosts[f.cost_kind]}${duration(f.cost_ns)} (${percent(f.cost_share)})`;
    const more = el(
        "details", null, el("summary", null, `Evidence (${count(f.evidence_total)})`),
        f.cost_how ? el("p", null, "Cost: " + f.cost_how) : null,
        f.evidence.map(
            e => el(
                "p", null, `${e.file}:${e.line}, seq ${e.seq}, at ${(e.at_ns / 1e9).toFixed(6)} s `,
                el("button", {type: "button", onclick: () => timeline.goto(e.at_ns, f.log)}, "Show"))),
        f.explains.length ? el("p", null, "Explains: " + f.explains.join(", ")) : null,
        f.source ? el("p", null, "From: " + f.source) : null);
    return el(
        "article", {class: "finding " + f.severity, "data-rule": f.rule, "data-cost": f.cost_ns},
        el("div", {class: "head"}, el("span", {class: "severity"}, f.severity), el("span", {class: "rule"}, f.rule),
           el("span", {class: "dim"}, where.filter(known).join(", ")), el("span", {class: "cost"}, cost)),
        el("p", null, f.message), f.remedy ? el("p", {class: "do"}, f.remedy) : null, more);
  });
  if (list.length === 0) list.push(el("p", {class: "good"}, `Nothing found (${analysis.rules} rules).`));
  $("finding-list").replaceChildren(...list);
}
