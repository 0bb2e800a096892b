// SPDX-License-Identifier: Apache-2.0
// The address space: captured ranges, slots, what lives there now, and what moved where.

const MAP_DRAWN = 60, MAP_FEW = 20, MAP_ROWS = 200;

const ROLE = {
	old: "captured, gone", stays: "captured, slot has left it", now: "lives there now",
	new: "slot is now here", live: "allocated",
};
const ROLE_CLASS = { old: "r-old", stays: "r-stays", now: "r-now", new: "r-new", live: "r-live" };
const ROLE_RANK = { old: 0, stays: 1, new: 2, now: 3, live: 4 };

// All ranges that the report speaks of, once each, in order of addresses; moves link old and new.
function rangesOf(process) {
	const ranges = new Map();
	const moves = new Map();
	function add(base, size, generation, kind, role, name) {
		const key = base + "/" + generation;
		let r = ranges.get(key);
		if (!r) {
			r = { base, size, generation, kind, role, names: new Set(), execs: new Set(),
				held: 0, to: [] };
			ranges.set(key, r);
		}
		if (ROLE_RANK[role] < ROLE_RANK[r.role])
			r.role = role;
		r.kind = r.kind || kind;
		if (name && r.names.size < 4)
			r.names.add(name);
		return r;
	}
	function link(from, to) {
		if (from !== to && !moves.has(from.base + from.generation + to.base + to.generation)) {
			moves.set(from.base + from.generation + to.base + to.generation, [from, to]);
			from.to.push(to);
			to.from = from;
		}
	}
	for (const ref of process.refs) {
		if (!ref.old)
			continue;
		const moved = ref.reason === "slot-moved" || ref.reason === "in-flight";
		const old = add(ref.old.base, ref.old.size, ref.old.generation, ref.old.kind,
			moved ? "stays" : "old", ref.slot && ref.slot.name);
		old.execs.add(ref.exec);
		old.held++;
		if (ref.now) {
			const slotMoved = ref.reason === "slot-moved";
			const now = add(ref.now.base, ref.now.size, ref.now.generation, ref.now.kind,
				slotMoved ? "new" : "now", slotMoved ? ref.slot.name : null);
			if (slotMoved)
				link(old, now);
		}
	}
	for (const f of process.findings) {
		if (!f.old && !f.now)
			continue;
		const side = (b, role) => b && b.base !== "0x0" ?
			add(b.base, b.bytes, b.generation, null, role, subjectOf(f)) : null;
		const old = side(f.old, f.old && !f.old.close && f.kind !== "missing" ? "stays" : "old");
		const now = side(f.now, "new");
		if (old && now)
			link(old, now);
	}
	const live = new Map();
	for (const [, event, what, address, size, serial, stack] of process.events) {
		if (event === "alloc" || event === "map")
			live.set(serial, { what, address, size, serial, stack });
		else if (event === "free" || event === "unmap")
			live.delete(serial);
	}
	for (const e of live.values())
		if (e.size)
			add(e.address, e.size, e.serial, e.what, "live", null);
	return { ranges: [...ranges.values()].sort((a, b) => byAddress(a.base,
		b.base) || a.generation - b.generation),
		moves: [...moves.values()] };
}

function placeRanges(ranges) {
	const points = ranges.flatMap((r) => [Number(r.base), Number(r.base) + Math.max(r.size, 1)]);
	const scale = gapScale(points, WIDTH, 256, 2 ** 24, null, (from, to) =>
		!ranges.some((r) => Number(r.base) <= from && Number(r.base) + r.size >= to));
	const lanes = [];
	for (const r of [...ranges].sort((a, b) => ROLE_RANK[a.role] - ROLE_RANK[b.role])) {
		const x = scale.at(Number(r.base));
		const w = Math.max(4, scale.at(Number(r.base) + Math.max(r.size, 1)) - x);
		let lane = 0;
		while (lanes[lane] && lanes[lane].some(([a, b]) => x < b - 0.5 && x + w > a + 0.5))
			lane++;
		(lanes[lane] = lanes[lane] || []).push([x, x + w]);
		Object.assign(r, { x, w, lane });
	}
	return { scale, lanes: lanes.length };
}

function rangeLabel(r) {
	const name = [...r.names][0];
	const size = bytes(r.size);
	const room = (r.w - 8) / 6;
	for (const t of [name ? name + ", " + size : r.kind + " " + size, name || size,
		name && name.slice(name.lastIndexOf("/") + 1), size])
		if (t && t.length <= room)
			return t;
	return "";
}

function drawMap(ranges, moves) {
	const drawn = new Set(ranges);
	const placed = placeRanges(ranges);
	const links = moves.filter(([a, b]) => drawn.has(a) && drawn.has(b));
	const top = links.length ? 20 + 16 * Math.min(4, links.length) : 8;
	const y = (r) => top + r.lane * 30;
	const bottom = top + placed.lanes * 30;
	let lastLabel = -1e9;
	const addresses = ranges.filter((r) => r.lane === 0 || !ranges.some((o) => o !== r && o.base === r.base && o.lane < r.lane))
		.map((r) => {
			const end = r.x > WIDTH - 96;
			const from = end ? WIDTH - 96 : r.x;
			if (from < lastLabel + 104)
				return null;
			lastLabel = from;
			return s("text", { x: end ? WIDTH : r.x, y: bottom + 14, class: "mono",
				"text-anchor": end ? "end" : "start" }, r.base);
		});
	return h("div", { class: "drawing" }, s("svg", { viewBox: `0 0 ${WIDTH} ${bottom + 32}`, role: "group",
		"aria-label": "Map of the address space; the table below says the same" },
	s("defs", {}, s("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7,
		markerHeight: 7, orient: "auto" },
		s("path", { d: "M0 0L8 4L0 8Z", class: "arrow" }))),
	apart(placed.scale.cuts,
		60).map((c) => [s("path",
		{ d: `M${c.at - 3} ${top + 19}l5 -14M${c.at + 1} ${top + 19}l5 -14`, class: "cut" }),
		s("text", { x: c.at, y: bottom + 28, "text-anchor": "middle" }, bytes(c.gap))]),
	ranges.map((r) => s("a", { href: "#range-" + r.row, "aria-label": r.base + ", " +
		bytes(r.size) + ", " + ROLE[r.role] },
		s("rect", { x: r.x, y: y(r), width: r.w, height: 24, class: ROLE_CLASS[r.role] },
		s("title", {}, [r.base, rangeText(r), ROLE[r.role], ...r.names].join("\n"))),
		s("text", { x: r.x + 5, y: y(r) + 16, class: "strong", "pointer-events": "none" },
			rangeLabel(r)))),
	links.slice(0, 40).map(([a, b], i) => {
		const x1 = a.x + a.w / 2, x2 = b.x + b.w / 2, up = top - 14 - 14 * (i % 4);
		return s("path", { d: `M${x1} ${y(a)}C${x1} ${up - 12} ${x2} ${up - 12} ${x2} ${y(b) - 1}`,
			class: "arc", "marker-end": "url(#tip)" });
	}),
	addresses));
}

function rangeRow(r) {
	const to = (other, word) => h("a", { href: "#range-" + other.row }, word + " " + other.base);
	return h("tr", { id: "range-" + r.row, tabindex: "-1" },
		h("td", { class: "mono" }, r.base),
		h("td", { class: "num" }, bytes(r.size)),
		h("td", {}, r.kind || ""),
		h("td", { class: "num" }, r.generation),
		h("td", { class: r.role === "old" ? "fail" : null }, ROLE[r.role]),
		h("td", {}, [...r.names].join(", ")),
		h("td", {}, r.held ? h("button", { type: "button", class: "plain",
			onclick: () => searchRefs("old:" + r.base) },
		plural(r.held, "address", "addresses") + " in " + plural(r.execs.size, "graph")) : ""),
		h("td", {}, r.to.slice(0, 3).map((o, i) => [i ? ", " : "", to(o, "moved to")]), r.from ?
			[r.to.length ? ", " : "", to(r.from, "was")] : ""));
}

const KEYS = [["r-old", "captured by a graph, gone"], ["r-stays", "captured by a graph, the slot has left it"],
	["r-now", "lives there now"], ["r-new", "where the slot is now"],
	["r-live", "allocated, from the trace"]];

function mapSection(process) {
	const { ranges, moves } = rangesOf(process);
	ranges.forEach((r, i) => { r.row = i; });
	// What findings speak of comes first; the rest of the trace fills up.
	const important = ranges.filter((r) => r.role !== "live");
	const chosen = new Set([...important, ...ranges.filter((r) => r.role === "live")].slice(0, MAP_ROWS));
	const rows = ranges.filter((r) => chosen.has(r));
	const few = Math.max(0, MAP_FEW - important.length);
	const drawn = new Set([...important.slice(0, MAP_DRAWN),
		...rows.filter((r) => r.role === "live").slice(0, few)]);
	const left = ranges.length - rows.length;
	const graphs = process.exit ? process.exit.counters["graphs.refs"] : null;
	return h("section", { id: "map", "aria-labelledby": "h-map" },
		h("h2", { id: "h-map" }, "Address space"),
		h("p", { class: "quiet" }, ranges.length ?
			"The ranges that this report names, in order of addresses; widths grow with the " +
			"logarithm of the size, gaps are cut." : "The report names no range.",
		graphs ? " Of " + count(graphs) +
			" addresses in graphs only those of findings are listed in a report." : ""),
		ranges.length ? [
			h("ul", { class: "key" },
				KEYS.filter(([cls]) => rows.some((r) => ROLE_CLASS[r.role] === cls)).map(([cls, t]) =>
				h("li", {}, s("svg", { viewBox: "0 0 22 12", "aria-hidden": "true" },
					s("rect", { x: 1, y: 1, width: 20, height: 10, class: cls })), t)),
			moves.length ? h("li", {}, s("svg", { viewBox: "0 0 22 12", "aria-hidden": "true" },
				s("path", { d: "M2 11C2 1 18 1 19 9", class: "arc" })), "moved") : null),
			drawMap(rows.filter((r) => drawn.has(r)), moves),
			rows.length > drawn.size && h("p", { class: "quiet" }, "Drawn are " +
				drawn.size + " of them, those of findings first."),
			h("details", { class: "more", open: rows.length <= 24 },
				h("summary", {}, "The same as a table, " + plural(rows.length, "range")),
				table(null, ["Address", "#Size", "Memory", "#Generation", "State",
					"Slot", "Held by", "Linked"], rows.map(rangeRow)),
				left > 0 && h("p", { class: "quiet" }, plural(left, "more range") +
					" of this process are not shown here; " +
					"the captured ones are in the table below.")),
		] : null);
}
