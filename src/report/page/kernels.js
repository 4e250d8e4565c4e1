// The table of kernels, copies and overlap, losses: report --json laid out.
const shortName = group => shortNames[report.groups.indexOf(group)];
const kKernelColumns = [
  {
    id: "name",
    title: "Kernel",
    words: true,
    cls: "name",
    key: g => g.name || g.label,
    text: shortName,
    finish: (cell, g) => {
      cell.title = g.name || g.label;
      linkToOccupancy(cell, g);
    }
  },
  {
    id: "share",
    title: "Share",
    what: "of " + report.share_of.replace(/_/g, " "),
    key: g => known(g.time_share) ? g.time_share : g.launch_share,
    text: g => percent(known(g.time_share) ? g.time_share : g.launch_share),
    finish: (cell, g) => {
      cell.classList.add("share");
      const bar = el("i");
      bar.style.width = 100 * (known(g.time_share) ? g.time_share : g.launch_share) + "%";
      cell.append(bar);
    }
  },
  {id: "launches", title: "Launches", key: g => g.launches, text: g => count(g.launches)},
  {id: "total", title: "GPU total", key: g => g.gpu && g.gpu.total_ns, text: g => duration(g.gpu && g.gpu.total_ns)},
  {id: "mean", title: "Mean", key: g => g.gpu && g.gpu.mean_ns, text: g => duration(g.gpu && g.gpu.mean_ns)},
  {id: "median", title: "Median", key: g => g.gpu && g.gpu.median_ns, text: g => duration(g.gpu && g.gpu.median_ns)},
  {id: "p95", title: "p95", key: g => g.gpu && g.gpu.p95_ns, text: g => duration(g.gpu && g.gpu.p95_ns)},
  {id: "max", title: "Longest", key: g => g.gpu && g.gpu.max_ns, text: g => duration(g.gpu && g.gpu.max_ns)},
  {id: "occupancy", title: "Occupancy", key: g => g.occupancy, text: g => percent(g.occupancy)},
  {
    id: "limiter",
    title: "Limited by",
    words: true,
    key: g => g.limiting_resource || "",
    text: g => g.limiting_resource || "-"
  },
  {id: "regs", title: "Regs", key: g => g.num_regs && g.num_regs.max, text: g => range(g.num_regs)},
  {
    id: "shared",
    title: "Shared",
    what: "bytes of shared memory per block, static + dynamic",
    key: g => g.static_shared_bytes && g.dyn_shared_bytes && g.static_shared_bytes.max + g.dyn_shared_bytes.max,
    text: g => known(g.static_shared_bytes) ? range(g.static_shared_bytes) + "+" + range(g.dyn_shared_bytes) : "-"
  },
  {id: "block", title: "Block", key: g => g.block_threads && g.block_threads.max, text: g => range(g.block_threads)},
  {
    id: "queue",
    title: "Queue",
    what: "mean time from the launch call to the start on the GPU",
    key: g => g.queue && g.queue.mean_ns,
    text: g => duration(g.queue && g.queue.mean_ns)
  },
  {
    id: "call",
    title: "Call",
    what: "mean host time of the launch call",
    key: g => g.call && g.call.mean_ns,
    text: g => duration(g.call && g.call.mean_ns)
  },
];

function linkToOccupancy(cell, group) {
  const at = explained ? explained.kernels.findIndex(k => k.label === group.label) : -1;
  if (at < 0) return;
  cell.replaceChildren(
      el("button", {
        type: "button",
        onclick: () => {
          showKernel(at);
          $("occupancy").scrollIntoView();
        }
      },
         shortName(group)));
}

function showKernels() {
  const filter = $("kernel-filter"), all = report.groups;
  const kept = kKernelColumns.filter(c => c.words || all.some(g => known(c.key(g))));
  const refill = dataTable($("kernel-table"), kept, all, {
    sortable: true,
    sort: kept.findIndex(c => c.id === "share"),
    row: g => ({"data-label": g.label}),
    filter: g => (g.name || g.label).toLowerCase().includes(filter.value.toLowerCase()),
    filled: (shown, rows) => {
      const beyond = report.groups_total - rows;
      $("kernel-count").textContent = `${count(shown)} of ${plural(rows, "kernel")}` +
          (beyond > 0 ? `; ${count(beyond)} more with the least share are left out of this page` : "");
    }
  });
  filter.addEventListener("input", refill);
}

function section(title, ...children) { return [el("h3", null, title), ...children]; }
function scrolled(columns, rows, tall) {
  const table = el("table");
  dataTable(table, columns, rows);
  return el("div", {class: tall ? "scroll tall" : "scroll"}, table);
}

function deviceBar(d) {
  const both = d.copy_beside_kernel_ns, parts = [
    ["kernels alone", d.kernel_busy_ns - both, "var(--k0)"], ["kernels and copies", both, "var(--k1)"],
    ["copies alone", d.copy_busy_ns - both, "var(--copy-out)"], ["idle", d.idle_ns, "var(--idle)"]
  ];
  const bar = el("div", {class: "bar"}), legend = el("div", {class: "legend"});
  for (const [name, ns, colour] of parts) {
    const piece = el("i", {title: name + " " + duration(ns)}), swatch = el("i");
    piece.style.width = d.span_ns > 0 ? 100 * ns / d.span_ns + "%" : "0";
    piece.style.background = swatch.style.background = colour;
    bar.append(piece);
    legend.append(el("span", null, swatch, `${name} ${duration(ns)} (${percent(ns / d.span_ns)})`));
  }
  const log = report.logs.length > 1 ? " of " + logName(report.logs[d.log]) : "";
  const notes = [
    `Two kernels at once ${duration(d.kernels_side_by_side_ns)}`, `two of anything ${duration(d.overlapped_ns)}`
  ];
  if (d.uncertain_ns > 0) notes.push(`uncertain by at most ${duration(d.uncertain_ns)}: lines came far out of order`);
  return el(
      "div", {class: "device", "data-busy": d.busy_ns},
      el("div", null, el("b", null, `${known(d.device) ? "Device " + d.device : "Device not known"}${log}`),
         ` busy ${percent(d.busy_ns / d.span_ns)} of ${duration(d.span_ns)}`),
      bar, legend, el("p", {class: "dim"}, notes.join(", ") + "."));
}

const kTransferTail = [
  {title: "Count", key: c => c.count, text: c => count(c.count)},
  {title: "Bytes", key: c => c.bytes, text: c => bytes(c.bytes)},
  {title: "Rate while running", text: c => rate(c.bytes_per_second)},
  {title: "GPU total", key: c => c.gpu && c.gpu.total_ns, text: c => duration(c.gpu && c.gpu.total_ns)},
  {title: "Median", text: c => duration(c.gpu && c.gpu.median_ns)},
  {title: "Longest", text: c => duration(c.gpu && c.gpu.max_ns)}
];

function showCopies() {
  const out = report.device_times.map(deviceBar);
  if (out.length === 0) out.push(el("p", {class: "dim"}, "The log has no GPU times: record with --timing all."));
  if (report.copies.length > 0) {
    out.push(...section(
        "Copies",
        scrolled(
            [
              {title: "Direction", words: true, text: c => c.others ? "(others)" : c.kind || "-"},
              {title: "From", words: true, text: c => c.source || "-"},
              {title: "To", words: true, text: c => c.destination || "-"},
              {title: "Call", words: true, text: c => c.async ? "async" : "blocking"}, ...kTransferTail
            ],
            [...report.copies].sort((a, b) => b.bytes - a.bytes), true)));
  }
  if (report.fills.length > 0) {
    out.push(...section(
        "Fills",
        scrolled(
            [
              {title: "Memory", words: true, text: f => f.memory || "-"},
              {title: "Call", words: true, text: f => f.async ? "async" : "blocking"}, ...kTransferTail
            ],
            report.fills, true)));
  }
  const calls = report.calls.filter(c => c.host).sort((a, b) => b.host.total_ns - a.host.total_ns).slice(0, 20);
  if (calls.length > 0) {
    out.push(...section(
        "Calls by host time",
        scrolled(
            [
              {title: "Call", words: true, text: c => c.call},
              {title: "May wait for the GPU", words: true, text: c => c.may_wait ? "yes" : ""},
              {title: "Count", text: c => count(c.count)}, {title: "Failed", text: c => count(c.failed)},
              {title: "Host total", text: c => duration(c.host.total_ns)},
              {title: "Median", text: c => duration(c.host.median_ns)},
              {title: "Longest", text: c => duration(c.host.max_ns)}
            ],
            calls, true)));
  }
  if (report.memory.length > 0) {
    out.push(...section(
        "Memory",
        scrolled(
            [
              {title: "Device", words: true, text: m => known(m.device) ? String(m.device) : "host"},
              {title: "Kind", words: true, text: m => m.kind || "-"}, {title: "Peak", text: m => bytes(m.peak_bytes)},
              {title: "Left at the end", text: m => bytes(m.live_bytes)},
              {title: "Allocations", text: m => count(m.allocs)}, {title: "Frees", text: m => count(m.frees)}
            ],
            report.memory, true)));
  }
  $("copies-body").replaceChildren(...out);
}

// ---- what the recording does not have ----
const kLedger = ["seen", "written", "summarised", "pending", "lost_total", "rotated_away", "null_time", "table_full"];
function lossesOf(log) {
  const said = [];
  if (!log.ledger) said.push("the log has no ledger, so it does not say what was lost");
  else
    for (const [cause, n] of Object.entries(log.ledger.lost))
      if (n > 0) said.push(`${plural(n, "event")} lost: ${cause.replace(/_/g, " ")}`);
  if (log.ledger && log.ledger.rotated_away > 0)
    said.push(`${plural(log.ledger.rotated_away, "event")} rotated away with old segments`);
  if (!log.ended) said.push("the log has no end: the program still runs, or was killed");
  if (log.missing_events > 0) said.push(`${plural(log.missing_events, "event")} written and not in the file any more`);
  if (log.untimed_kernels > 0) said.push(`${plural(log.untimed_kernels, "kernel")} without GPU times`);
  if (log.pending_total > 0) said.push(`${plural(log.pending_total, "kernel")} had not ended when that was asked`);
  if (log.read.broken_lines > 0) said.push(`${plural(log.read.broken_lines, "line")} could not be read`);
  if (log.errors_total > 0) said.push(plural(log.errors_total, "CUDA error"));
  if (log.hangs_total > 0) said.push(plural(log.hangs_total, "hang"));
  return said;
}

function showLosses() {
  const out = [];
  for (const log of report.logs) {
    const said = lossesOf(log);
    if (said.length === 0) continue;
    out.push(el("h3", null, logName(log)), el("ul", null, said.map(text => el("li", null, text))));
  }
  if (out.length === 0)
    out.push(el("p", {class: "good"}, "Nothing was lost: every event that was seen is in the log."));
  const notices = report.logs.flatMap(log => log.notices.filter(n => n.severity !== "info").map(n => ({log, n})));
  for (const {log, n} of notices.slice(0, 50)) {
    out.push(el(
        "p", null, `${n.severity} of ${logName(log)} at ${(n.time_ns / 1e9).toFixed(3)} s: ${n.message} (${n.code})`));
  }
  const told = report.logs.filter(log => log.ledger);
  if (told.length > 0) {
    out.push(...section(
        "Ledger (seen = written + summarised + pending + lost)",
        scrolled(
            [
              {title: "Log", words: true, text: logName}, ...kLedger.map(key => ({
                                                                           id: "ledger-" + key,
                                                                           title: key.replace(/_/g, " "),
                                                                           key: log => log.ledger[key],
                                                                           text: log => count(log.ledger[key])
                                                                         }))
            ],
            told, true)));
  }
  $("losses-body").replaceChildren(...out);
}
