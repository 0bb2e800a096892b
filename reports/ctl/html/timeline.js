// SPDX-License-Identifier: Apache-2.0
// Phases of the process, reload by reload: a drawing, and the same as a table.

const WIDTH = 1160, LEFT = 84;

const EVENT_LANE = {
	alloc: "memory", map: "memory", free: "memory", unmap: "memory",
	capture: "graphs", instantiate: "graphs", update: "graphs", destroy: "graphs",
	launch: "launches", refused: "launches",
};

function reloadName(r) {
	return r.verify ? "verify" : "reload " + r.id;
}

function phases(process, reloads) {
	const list = [];
	let from = process.first;
	for (const r of reloads) {
		if (r.begin > from)
			list.push({ from, to: r.begin, kind: "serve", text: list.length ? "serving" :
				"loading, capture" });
		list.push({ from: r.begin, to: r.end, kind: r.verdict, text: reloadName(r), reload: r });
		from = Math.max(from, r.end);
	}
	if (process.last > from)
		list.push({ from, to: process.last, kind: "serve", text: reloads.length ? "serving" : "" });
	return list;
}

// Marks that would lie on one another become one that says how many it stands for.
function merged(marks, scale, step) {
	const places = [], last = {};
	for (const m of [...marks].sort((a, b) => a.t - b.t)) {
		const x = scale.at(m.t), there = last[m.cls];
		if (there && x - there.x < step)
			there.count++;
		else
			places.push(last[m.cls] = { x, count: 1, ...m });
	}
	return places;
}

function drawPhases(list, scale, y) {
	return list.map((p) => {
		const x = LEFT + scale.at(p.from), w = Math.max(2, LEFT + scale.at(p.to) - x);
		const label = p.text + ", " + duration(p.to - p.from) + (p.reload ? ", " + p.kind : "");
		const box = [s("rect", { x, y, width: w, height: 26, class: "f-" + p.kind },
			s("title", {}, label)),
		w > p.text.length * 6 + 8 ? s("text", { x: x + 5, y: y + 17, "pointer-events": "none",
			class: p.reload ? "strong" : null }, p.text) :
			p.reload && w > 16 && s("text", { x: x + 5, y: y + 17, "pointer-events": "none",
				class: "strong" }, p.reload.id),
		p.reload && w > (p.text.length + 12) * 6 + 8 && s("text", { x: x + w - 5, y: y + 17,
			"text-anchor": "end", "pointer-events": "none" }, duration(p.to - p.from))];
		return p.reload ? s("a", { href: "#reload-" + p.reload.line, "aria-label": label }, box) : box;
	});
}

function drawFindings(process, scale, y) {
	const marks = process.findings.map((f) => ({ t: f.t, cls: f.severity, finding: f }));
	return merged(marks, scale, 15).map((m, i, all) => {
		const x = LEFT + m.x;
		const label = m.finding.kind + (m.count > 1 ? " and " + (m.count - 1) + " more" : "");
		return s("a", { href: "#finding-" + m.finding.shown.number, "aria-label": label,
			onclick: () => openFinding(m.finding) },
		s("path", { d: `M${x - 6} ${y + 13}L${x} ${y + 2}L${x + 6} ${y + 13}Z`, class: "m-" + m.cls },
			s("title", {}, label)),
		m.count > 1 && !(all[i + 1] && all[i + 1].x < m.x + 24) && s("text",
			{ x: x + 8, y: y + 13 }, m.count));
	});
}

function drawEvents(process, scale, lane, y) {
	const marks = process.events.filter((e) => EVENT_LANE[e[1]] === lane)
		.map((e) => ({ t: e[0], cls: e[1] }));
	return merged(marks, scale, 5).map((m) => s("line", { x1: LEFT + m.x, x2: LEFT + m.x,
		y1: m.cls === "free" || m.cls === "unmap" ? y + 8 : y + 1,
		y2: m.cls === "alloc" || m.cls === "map" ? y + 8 : y + 15,
		class: "tick " + (m.cls === "refused" ? "refused" : "") },
	s("title", {}, (m.count > 1 ? m.count + " × " : "") + m.cls)));
}

function drawTimeline(process, reloads) {
	const events = process.events;
	const points = [process.first, process.last, ...reloads.flatMap((r) => [r.begin, r.end]),
		...process.findings.map((f) => f.t), ...thin(events, 200).map((e) => e[0])];
	const span = process.last - process.first;
	const list = phases(process, reloads);
	const scale = gapScale(thin(points.sort((a, b) => a - b), 500), WIDTH - LEFT - 6,
		Math.max(1e3, span / 1e4), Math.max(5e9, span / 3), list.map((p) => [p.from, p.to]));
	const lanes = ["phases", "findings", ...["memory", "graphs", "launches"].filter((lane) =>
		events.some((e) => EVENT_LANE[e[1]] === lane))];
	const top = (i) => i ? 22 + i * 24 : 8;
	const height = top(lanes.length) + 26;
	const end = height - 8;
	return h("div", { class: "drawing" }, s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "group",
		"aria-label": "Timeline; the table below says the same" },
	lanes.map((lane, i) => s("text", { x: 0, y: top(i) + (i ? 13 : 17) }, lane)),
	lanes.slice(1).map((lane, i) => s("line", { x1: LEFT, x2: WIDTH, y1: top(i + 1) + 18,
		y2: top(i + 1) + 18, class: "axis" })),
	drawPhases(list, scale, top(0)),
	drawFindings(process, scale, top(1)),
	lanes.slice(2).map((lane, i) => drawEvents(process, scale, lane, top(i + 2))),
	apart(scale.cuts, 90).map((c) => [
		s("path", { d: `M${LEFT + c.at - 3} ${top(1) + 10}l4 -17M${LEFT + c.at + 1} ${top(1) + 10}l4 -17`, class: "cut" }),
		s("text", { x: LEFT + c.at, y: end, "text-anchor": "middle" }, duration(c.gap))]),
	s("text", { x: LEFT, y: end }, moment(process.first).slice(11, 23)),
	s("text", { x: WIDTH, y: end, "text-anchor": "end" }, "+" + duration(span))));
}

function scopeText(r) {
	const part = [...r.scope.layers, ...r.scope.sources];
	return (r.scope.full ? "all" : part.length ? part.slice(0, 6).join(", ") +
		(part.length > 6 ? " and " + (part.length - 6) + " more" : "") : "all") +
		(r.scope.role ? " (" + r.scope.role + ")" : "");
}

function reloadRow(r, found) {
	const layers = r.layers;
	const notes = [r.aborted && "aborted" + (r.why ? ": " + r.why : ""), !r.aborted && r.why,
		r.unsafe && "process unsafe from here on",
		r.caches.filter((c) => !c[1]).map((c) => "cache " + c[0] + " not flushed").join(", "),
		r.verdict !== r.counts_as && "counts as " + r.counts_as];
	return h("tr", { id: "reload-" + r.line, tabindex: "-1" },
		h("th", { scope: "row" }, reloadName(r)),
		h("td", { class: r.verdict }, r.verdict),
		h("td", { class: "num" }, r.verify ? "" : duration(r.end - r.begin)),
		h("td", {}, r.verify ? "" : scopeText(r)),
		h("td", {}, r.verify ? "" : [layers.committed || 0, " committed",
			layers.refused ? [", ", h("span", { class: "fail" }, layers.refused + " refused")] : "",
			layers.open ? [", ", h("span", { class: "fail" }, layers.open + " open")] : ""]),
		h("td", { class: "num" }, r.verify ? "" : bytes(r.published)),
		h("td", { class: "num" }, r.verify ? "" : count(r.receipts.parts || 0)),
		h("td", {}, found.length ? h("a", { href: "#finding-" + found[0].shown.number,
			onclick: () => openFinding(found[0]) }, plural(found.length, "finding")) : "none"),
		h("td", { class: "quiet" }, notes.filter((n) => n).join("; ")));
}

function timelineSection(process) {
	const reloads = process.reloads.filter((r) => !r.verify);
	const found = new Map(process.reloads.map((r) => [r, []]));
	for (const f of process.findings)
		if (f.home)
			found.get(f.home).push(f);
	const traced = process.events.length ? "" : " Allocations, captures and launches are not drawn: " +
		(process.lines.event ? "they are in the file, but beyond the limit of this page." :
			"the report was written without ARENA_TRACE=on.");
	return h("section", { id: "timeline", "aria-labelledby": "h-timeline" },
		h("h2", { id: "h-timeline" }, "Timeline"),
		h("p", { class: "quiet" },
			"Order is exact; lengths are compressed, long gaps are cut and labelled." + traced),
		drawTimeline(process, reloads),
		process.reloads.length ? table(null, ["", "Verdict", "#Took", "Scope", "Layers", "#Published",
			"#Parts received", "Findings", "Notes"],
				process.reloads.map((r) => reloadRow(r, found.get(r)))) :
			h("p", { class: "quiet" },
				"The process declared no reload. Without arena_reload_begin() or a " +
				"watch, moves between two launches are found when memory is freed or a graph is launched."));
}
