// The timeline: a canvas of our own, since a frame must not depend on how much there is. Of each track the visible part
// is found by binary search; pieces narrower than two pixels are drawn a pixel column at a time, as high as the column
// was busy with each colour, by sums made once. So a frame costs at most so many steps as there are pixels, at 200
// events and at 200,000.
//
// For tests: the canvas has data-from and data-to (ns), data-boxes (what was drawn), data-tracks, data-hover, data-ms
// (how long the last frame took), data-label and data-row (pixels of a label's width and a track's height).
const timeline = (() => {
  const packed = data("timeline");
  let kLabel = 178, kRow = 30, kAxis = 26, kStrip = 34, size = 1;  // pixels at the letters of a laptop; see resize()
  const canvas = $("timeline-canvas"), frame = $("timeline-frame"), hover = $("timeline-hover"),
        paint = canvas.getContext("2d");
  const kinds = [
    ["kernel", null], ["copy to the device", "copy-in"], ["copy to the host", "copy-out"], ["other copy", "copy"],
    ["fill", "fill"], ["host waits", "wait"], ["several kinds", "mixed"]
  ];
  function column(name, Kind) {
    const text = atob(packed[name]), raw = new Uint8Array(text.length);
    for (let i = 0; i < raw.length; ++i) raw[i] = text.charCodeAt(i);
    packed[name] = null;
    return new Kind(raw.buffer);
  }
  const start = column("start", Float64Array), length = column("length", Float32Array),
        busy = column("busy", Float32Array);
  const queue = column("queue", Float32Array), amount = column("amount", Float32Array),
        pieces = column("pieces", Uint32Array);
  const name = column("name", Uint16Array), kind = column("kind", Uint8Array), tracks = packed.tracks,
        names = packed.names;
  // Of several kinds in one box: that of its longest piece.
  const kindOf = i => kind[i] === 6 ? names[name[i]].kind : kind[i];
  const n = start.length;
  let least = Infinity, most = -Infinity, from = 0, to = 1, width = 0, height = 0, wanted = false, colours = [],
      mouse = null;
  const byTime = new Map();  // time of each kernel name, for its colour
  for (let i = 0; i < n; ++i) {
    least = Math.min(least, start[i]);
    most = Math.max(most, start[i] + length[i]);
    if (kindOf(i) === 0) byTime.set(names[name[i]].name, (byTime.get(names[name[i]].name) || 0) + busy[i]);
  }
  if (n === 0) {
    least = 0;
    most = 1;
  }
  if (most <= least) most = least + 1;
  const ranked = [...byTime].sort((a, b) => b[1] - a[1]).map(([kernel]) => kernel);
  const rank = new Map(ranked.map((kernel, i) => [kernel, i]));
  const colourOfName = names.map(one => one.kind === 0 ? (rank.get(one.name) || 0) % 8 : -1);
  const several = report.logs.length > 1;
  // Of each colour the busy time before each piece: what a column of many pieces is filled with.
  const shadeOf = i => kindOf(i) === 0 ? colourOfName[name[i]] : 7 + kindOf(i), sums = [];
  for (let i = 0; i < n; ++i) {
    const shade = shadeOf(i);
    if (!sums[shade]) sums[shade] = new Float64Array(n + 1);
    sums[shade][i + 1] = busy[i];
  }
  for (const one of sums)
    if (one)
      for (let i = 0; i < n; ++i) one[i + 1] += one[i];
  const shades = sums.map((one, shade) => one ? shade : -1).filter(shade => shade >= 0);

  function readColours() {
    const shade =
        [0, 1, 2, 3, 4, 5, 6, 7].map(i => css("k" + i)).concat(kinds.slice(1).map(([, variable]) => css(variable)));
    colours = {
      shade,
      text: css("text"),
      dim: css("dim"),
      grid: css("grid"),
      line: css("line"),
      panel: css("panel"),
      back: css("back"),
      select: css("select"),
      idle: css("idle"),
      link: css("link"),
      box: "#ffffff"
    };
    if (matchMedia("(prefers-color-scheme: dark)").matches) colours.box = "#0c1116";
  }
  const colourOf = i => colours.shade[shadeOf(i)];
  // The first row of [low, high) that starts at `time` or later.
  function startsFrom(time, low, high) {
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (start[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  // The first piece of a track that is seen: the one before may reach into the view.
  function firstSeen(track, time) {
    let i = startsFrom(time, track.from, track.to);
    while (i > track.from && start[i - 1] + length[i - 1] > time) --i;
    return i;
  }
  const xOf = time => kLabel + (time - from) / (to - from) * (width - kLabel);
  const timeAt = x => from + (x - kLabel) / (width - kLabel) * (to - from);

  // Busy time of one colour on a track before `time`, where `row` is the last piece that starts before it.
  function busyBefore(shade, row, time, track) {
    if (row < track.from) return sums[shade][track.from];
    const part = length[row] > 0 && shadeOf(row) === shade ?
        busy[row] * Math.min((time - start[row]) / length[row], 1) :
        0;
    return sums[shade][row] + (length[row] > 0 ? part : sums[shade][row + 1] - sums[shade][row]);
  }
  function drawColumn(track, x, perPixel, boxTop, boxHeight) {
    const a = from + (x - kLabel) * perPixel, b = a + perPixel;
    const rowA = startsFrom(a, track.from, track.to) - 1,
          rowB = startsFrom(b, Math.max(rowA, track.from), track.to) - 1;
    let bottom = boxTop + boxHeight;
    const parts = [];
    let total = 0;
    for (const shade of shades) {
      const part = (busyBefore(shade, rowB, b, track) - busyBefore(shade, rowA, a, track)) / perPixel;
      if (part > 1e-9) {
        parts.push(shade, part);
        total += part;
      }
    }
    // Not so low that a lonely piece is not seen.
    const scale = total > 0 ? Math.max(Math.min(total, 1), .25) / total * boxHeight : 0;
    for (let k = 0; k < parts.length; k += 2) {
      paint.fillStyle = colours.shade[parts[k]];
      paint.fillRect(x, bottom -= parts[k + 1] * scale, 1, parts[k + 1] * scale);
    }
  }
  function drawTrack(track, top) {
    const perPixel = (to - from) / (width - kLabel), boxTop = top + 4, boxHeight = kRow - 8, wide = 2 * perPixel;
    let i = firstSeen(track, from), boxes = 0;
    while (i < track.to && start[i] < to) {
      if (length[i] >= wide) {
        const x0 = xOf(start[i]), x1 = xOf(start[i] + length[i]), left = Math.max(x0, kLabel),
              right = Math.min(x1, width);
        paint.globalAlpha = pieces[i] > 1 ? .6 : 1;
        paint.fillStyle = colourOf(i);
        paint.fillRect(left, boxTop, Math.max(right - left - (x1 - x0 > 5 ? 1 : 0), 1), boxHeight);
        paint.globalAlpha = 1;
        if (right - left > 44 * size) boxText(i, left, right, boxTop + boxHeight / 2);
        ++i;
        ++boxes;
        continue;
      }
      const x = Math.max(Math.floor(xOf(start[i])), kLabel);
      drawColumn(track, x, perPixel, boxTop, boxHeight);
      // On to what starts in a later column, or is wide: only the last of a column's pieces can be that.
      const end = from + (x + 1 - kLabel) * perPixel, next = Math.max(startsFrom(end, i + 1, track.to), i + 1);
      const last = next - 1;
      // A narrow piece that reaches into the next column has its share there.
      if (last > i && length[last] >= wide) i = last;
      else {
        i = next;
        if (start[last] + length[last] > end && !(i < track.to && start[i] < end + perPixel))
          drawColumn(track, x + 1, perPixel, boxTop, boxHeight);
      }
      ++boxes;
    }
    return boxes;
  }
  function boxText(i, left, right, middle) {
    const text = (pieces[i] > 1 ? count(pieces[i]) + ": " : "") + names[name[i]].name,
          room = Math.floor((right - left - 8) / (6.6 * size));
    paint.fillStyle = pieces[i] > 1 ? colours.text : colours.box;
    paint.fillText(text.length <= room ? text : text.slice(0, Math.max(room - 1, 1)) + "\u2026", left + 4, middle);
  }
  function tickStep() {
    const rough = (to - from) / Math.max((width - kLabel) / 110, 1), power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map(m => m * power).find(step => step >= rough);
  }
  function tickText(time, step) {
    const [unit, per] = step >= 1e9 ? ["s", 1e9] : step >= 1e6 ? ["ms", 1e6] : step >= 1e3 ? ["us", 1e3] : ["ns", 1];
    return count(Math.trunc(time / per)) + " " + unit;
  }
  function drawAxis() {
    const step = tickStep();
    paint.strokeStyle = colours.grid;
    paint.fillStyle = colours.dim;
    for (let time = Math.ceil(from / step) * step; time < to; time += step) {
      const x = Math.round(xOf(time)) + .5;
      paint.beginPath();
      paint.moveTo(x, kAxis - 6);
      paint.lineTo(x, height - kStrip);
      paint.stroke();
      paint.fillText(tickText(time, step), x + 4, kAxis / 2);
    }
  }
  // All of the recording, and where in it the view is.
  let strip = null;
  function stripBusy() {
    const columns = Math.max(Math.round(width - kLabel), 1), gpu = tracks.filter(t => !t.host),
          out = new Float32Array(columns);
    const per = (most - least) / columns;
    for (const track of gpu) {
      for (let i = track.from; i < track.to; ++i) {
        const first = Math.min(Math.floor((start[i] - least) / per), columns - 1);
        const last = Math.min(Math.floor((start[i] + length[i] - least) / per), columns - 1);
        for (let c = first; c <= last; ++c) {
          const a = Math.max(start[i], least + c * per), b = Math.min(start[i] + length[i], least + (c + 1) * per);
          out[c] += Math.max(b - a, 0) / per * (length[i] > 0 ? busy[i] / length[i] : 0);
        }
      }
    }
    return out;
  }
  function drawStrip() {
    const top = height - kStrip, bottom = height - 4, room = kStrip - 10;
    if (!strip || strip.length !== Math.max(Math.round(width - kLabel), 1)) strip = stripBusy();
    const tallest = strip.reduce((a, b) => Math.max(a, b), 1);
    paint.fillStyle = colours.panel;
    paint.fillRect(0, top, width, kStrip);
    paint.fillStyle = colours.dim;
    paint.fillText("all", 12, top + kStrip / 2);
    paint.fillStyle = colours.shade[0];
    strip.forEach((value, c) => {
      const h = value / tallest * room;
      if (h > 0) paint.fillRect(kLabel + c, bottom - h, 1, h);
    });
    const scale = (width - kLabel) / (most - least), a = kLabel + (from - least) * scale,
          b = kLabel + (to - least) * scale;
    paint.strokeStyle = colours.link;
    paint.lineWidth = 2;
    paint.strokeRect(
        Math.max(a, kLabel) + 1, top + 2, Math.max(Math.min(b, width) - Math.max(a, kLabel) - 2, 2), kStrip - 4);
    paint.lineWidth = 1;
  }
  function label(track, top) {
    paint.fillStyle = track.host ? colours.dim : colours.text;
    const device = track.host || !known(track.device) ? "" : "GPU " + track.device + "  ";
    const text = (several ? "[" + track.log + "] " : "") + device + track.title;
    paint.fillText(text.length > 27 ? text.slice(0, 26) + "\u2026" : text, 12, top + kRow / 2);
  }
  function draw() {
    wanted = false;
    const begun = performance.now();
    const scale = devicePixelRatio || 1;
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.font = `${Math.round(12 * size)}px system-ui, 'DejaVu Sans', sans-serif`;
    paint.textBaseline = "middle";
    paint.fillStyle = colours.back;
    paint.fillRect(0, 0, width, height);
    let boxes = 0;
    drawAxis();
    paint.save();
    paint.beginPath();
    paint.rect(0, kAxis, width, height - kAxis - kStrip);
    paint.clip();
    tracks.forEach((track, i) => {
      const top = kAxis + i * kRow - frame.scrollTop;
      if (top + kRow < kAxis || top > height) return;
      if (i > 0 &&
          (track.host !== tracks[i - 1].host || track.device !== tracks[i - 1].device ||
           track.log !== tracks[i - 1].log)) {
        paint.fillStyle = colours.line;
        paint.fillRect(0, top, width, 1);
      }
      label(track, top);
      boxes += drawTrack(track, top);
    });
    paint.restore();
    if (mouse && mouse.x > kLabel) {
      paint.fillStyle = colours.link;
      paint.fillRect(mouse.x, kAxis, 1, height - kAxis - kStrip);
    }
    drawStrip();
    Object.assign(
        canvas.dataset,
        {from, to, boxes, tracks: tracks.length, label: kLabel, row: kRow, ms: (performance.now() - begun).toFixed(2)});
  }
  function soon() {
    if (!wanted) requestAnimationFrame(draw);
    wanted = true;
  }
  function resize() {
    // As large as the page's letters, which grow with the window.
    size = Math.round(parseFloat(getComputedStyle(document.documentElement).fontSize)) / 16;
    [kLabel, kRow, kAxis, kStrip] = [178, 30, 26, 34].map(pixels => Math.round(pixels * size));
    strip = null;
    width = frame.clientWidth;
    const whole = kAxis + tracks.length * kRow + kStrip;
    height = Math.min(whole, Math.max(Math.floor(innerHeight * .72) - 2, 160));
    canvas.width = width * (devicePixelRatio || 1);
    canvas.height = height * (devicePixelRatio || 1);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    spacer.style.height = whole - height + "px";
    soon();
  }
  function show(a, b) {
    const whole = most - least, size = Math.min(Math.max(b - a, 50), whole * 1.02);
    const middle = (a + b) / 2, margin = whole * .01;
    a = Math.min(Math.max(middle - size / 2, least - margin), most + margin - size);
    from = Math.max(a, least - margin);
    to = from + size;
    hide();
    soon();
  }
  const zoom = (factor, x) => {
    const at = timeAt(x === undefined ? kLabel + (width - kLabel) / 2 : x);
    show(at - (at - from) * factor, at + (to - at) * factor);
  };
  const move = part => show(from + (to - from) * part, to + (to - from) * part);
  const all = () => show(least, most);
  function goto(time, log) {
    const shift = analysis.logs[log] ? analysis.logs[log].offset_ns : 0, size = Math.max((most - least) / 400, 2000);
    show(time + shift - size * .3, time + shift + size * .7);
    $("timeline").scrollIntoView();
  }
  // ---- what is under the mouse ----
  function pieceAt(x, y) {
    const track = tracks[Math.floor((y - kAxis + frame.scrollTop) / kRow)];
    if (!track || x < kLabel || y < kAxis || y > height - kStrip) return -1;
    const time = timeAt(x), near = 3 * (to - from) / (width - kLabel);
    let best = -1, distance = Infinity;
    for (let i = Math.max(startsFrom(time, track.from, track.to) - 1, track.from), k = 0; i < track.to && k < 2;
         ++i, ++k) {
      const off = time < start[i] ? start[i] - time : Math.max(time - start[i] - length[i], 0);
      if (off <= near && off < distance) {
        best = i;
        distance = off;
      }
    }
    return best;
  }
  function facts(i, track) {
    const one = names[name[i]],
          out = [["start", (start[i] / 1e9).toFixed(9) + " s"], ["duration", duration(length[i])]];
    if (pieces[i] > 1) {
      out.push(["pieces", count(pieces[i])], ["busy", duration(busy[i])]);
      if (kind[i] > 0 && kind[i] < 5) out.push(["bytes", bytes(amount[i])]);
      return out;
    }
    if (queue[i] >= 0) out.push(["queued before", duration(queue[i])]);
    if (kind[i] === 0) {
      out.push(["grid", plural(amount[i], "block")]);
      if (one.block)
        out.push(
            ["block", one.block], ["registers", known(one.regs) ? one.regs : "-"],
            ["shared memory", `${known(one.static_shared) ? one.static_shared : "-"} + ${one.dyn_shared} B`], [
              "occupancy",
              percent(one.occupancy) + (one.limiters.length ? ", limited by " + one.limiters.join(", ") : "")
            ]);
    } else if (kind[i] < 5) {
      out.push(["bytes", bytes(amount[i])], ["rate", length[i] > 0 ? rate(amount[i] / length[i] * 1e9) : "-"]);
    }
    out.push([track.host ? "thread" : "stream", track.title]);
    return out;
  }
  function hide() {
    hover.hidden = true;
    delete canvas.dataset.hover;
  }
  function tell(event) {
    const i = pieceAt(event.offsetX, event.offsetY);
    if (i < 0) return hide();
    const track = tracks.find(t => i >= t.from && i < t.to), one = names[name[i]];
    const title = pieces[i] > 1 ? `${count(pieces[i])} short pieces drawn as one, the longest: ${one.name}` : one.name;
    hover.replaceChildren(
        el("b", null, title),
        el("dl", null, facts(i, track).map(([what, value]) => [el("dt", null, what), el("dd", null, value)])));
    hover.hidden = false;
    canvas.dataset.hover = one.name;
    const box = hover.getBoundingClientRect();
    hover.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + "px";
    hover.style.top = Math.min(event.clientY + 14, innerHeight - box.height - 8) + "px";
  }
  // ---- mouse and keys ----
  let dragged = null;
  const inStrip = event => event.offsetY > height - kStrip && event.offsetX > kLabel;
  function toStrip(event) {
    const time = least + (event.offsetX - kLabel) / (width - kLabel) * (most - least), half = (to - from) / 2;
    show(time - half, time + half);
  }
  canvas.addEventListener("pointerdown", event => {
    dragged = {x: event.offsetX, from, to, strip: inStrip(event)};
    if (dragged.strip) toStrip(event);
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("dragged");
  });
  canvas.addEventListener("pointermove", event => {
    mouse = {x: event.offsetX};
    if (dragged && dragged.strip) return toStrip(event);
    if (dragged) {
      const by = (dragged.x - event.offsetX) / (width - kLabel) * (dragged.to - dragged.from);
      return show(dragged.from + by, dragged.to + by);
    }
    tell(event);
    soon();
  });
  const release = () => {
    dragged = null;
    canvas.classList.remove("dragged");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    mouse = null;
    hide();
    soon();
  });
  canvas.addEventListener("dblclick", event => zoom(.25, event.offsetX));
  canvas.addEventListener("wheel", event => {
    // A page that scrolls must not stop here: zoom once the timeline has been clicked, or with Ctrl.
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
      return move((event.deltaX || event.deltaY) / 1000);
    zoom(Math.exp(Math.max(Math.min(event.deltaY, 200), -200) / 300), event.offsetX);
  }, {passive: false});
  const keys = {
    "+": () => zoom(.5),
    "=": () => zoom(.5),
    "-": () => zoom(2),
    "0": all,
    Home: () => show(least, least + to - from),
    End: () => show(most - (to - from), most),
    ArrowLeft: () => move(-.2),
    ArrowRight: () => move(.2),
    ArrowUp: () => frame.scrollBy(0, -kRow),
    ArrowDown: () => frame.scrollBy(0, kRow)
  };
  canvas.addEventListener("keydown", event => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  frame.addEventListener("scroll", soon);
  const spacer = el("div");

  function note() {
    if (n === 0) return "No times in this log: record with --timing all.";
    let text = `All ${count(packed.seen)} pieces of work and waits that have times.`;
    if (packed.drawn < packed.seen) {
      text = `${count(packed.seen)} pieces of work and waits, drawn as ${count(packed.drawn)}: neighbours on one ` +
          `track that lie within ${duration(packed.merged_below_ns)} are one box, paler, in the colour of its ` +
          "longest piece. Under the mouse is what it holds.";
    }
    if (packed.left_out > 0) text += ` ${count(packed.left_out)} more on further tracks are left out.`;
    return text +
        " Drag to move, click and then turn the wheel to zoom. Keys: + \u2212 zoom, arrows move, 0 shows all.";
  }
  function legend() {
    const items = ranked.slice(0, 8).map((kernel, i) => ["var(--k" + i + ")", kernel]);
    const used = new Set();
    for (let i = 0; i < n; ++i) used.add(kindOf(i));
    kinds.forEach(([title, variable], i) => {
      if (i > 0 && used.has(i)) items.push(["var(--" + variable + ")", title]);
    });
    $("timeline-legend")
        .replaceChildren(
            ...items.map(([colour, title]) => {
              const swatch = el("i");
              swatch.style.background = colour;
              return el("span", {title}, swatch, title.length > 48 ? title.slice(0, 47) + "\u2026" : title);
            }),
            ranked.length > 8 ? el("span", null, `${plural(ranked.length - 8, "more kernel")} in the same colours`) :
                                "");
  }
  function begin() {
    frame.append(spacer);
    $("timeline-note").textContent = note();
    if (n === 0) {
      frame.hidden = true;
      return;
    }
    const button = (text, what, act) => el(
        "button", {type: "button", "aria-label": what, title: what, onclick: act}, text);
    $("timeline-tools")
        .replaceChildren(
            button("+", "Zoom in", () => zoom(.5)), button("\u2212", "Zoom out", () => zoom(2)),
            button("\u2190", "Move left", () => move(-.2)), button("\u2192", "Move right", () => move(.2)),
            button("All", "Show all", all));
    readColours();
    legend();
    show(least, most);
    resize();
    draw();
  }
  return {
    begin,
    resize,
    goto,
    restyle: () => {
      readColours();
      soon();
    }
  };
})();
