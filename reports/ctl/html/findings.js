// SPDX-License-Identifier: Apache-2.0
// Findings: what is wrong, who did it, what holds it, what to do. Drawn 100 at a time.

const FINDINGS_STEP = 100;

// Frames of one stack: Python first where there is any, for the native ones below are the interpreter's.
function stackView(process, number, title) {
	const stack = number ? process.stacks[number] : null;
	if (!stack)
		return h("div", {}, h("h3", {}, title), h("p", { class: "quiet" }, number ?
			"Stack " + number + " is not in the report." :
			"Not recorded (ARENA_STACKS=all records every allocation)."));
	const native = () => h("ol", { class: "stack" }, stack.native.map(([fn, file, line, inlined, place]) =>
		h("li", {}, fn ? [h("span", { class: "fn" }, fn), " ",
			h("span", { class: "quiet", title: place }, file ? baseName(file) +
				(line ? ":" + line : "") : place),
			inlined ? h("span", { class: "inl" }, " inlined") : ""] :
				h("span", { class: "fn quiet" }, place))));
	const python = h("ol", { class: "stack" }, stack.python.map(([file, line, fn]) =>
		h("li", {}, h("span", { class: "fn" }, fn), " ",
			h("span", { class: "quiet", title: file }, baseName(file) +
				(line ? ":" + line : "")))));
	return h("div", {}, h("h3", {}, title),
		stack.python.length ? [python, stack.native.length ? h("details", { class: "more" },
			h("summary", {}, plural(stack.native.length, "native frame")), native()) :
				null] : native());
}

function subjectOf(f) {
	const name = (f.layer ? f.layer + "/" : "") + (f.slot || f.source || f.cache);
	if (name || !f.refs.length)
		return name || f.subject;
	const names = new Set(f.refs.map((r) => r.slot ? r.slot.name : r.old ? bytes(r.old.size) + " " +
		r.old.kind : r.value));
	return [...names][0] + (names.size > 1 ? " and " + count(names.size - 1) + " more" : "");
}

function moveText(f) {
	const old = f.old ? f.old.base : f.refs.length && f.refs[0].old ? f.refs[0].value : null;
	const ref = f.refs[0];
	const now = f.now ? f.now.base : ref && ref.slot && ref.reason === "slot-moved" ? ref.slot.now :
		ref && ref.now ? ref.now.base : null;
	if (!old)
		return "";
	return old + (now ? (now === old ? " (now other memory)" : " → " + now) : " → nothing");
}

// The kernels that hold it, with how often each.
function holders(f) {
	const held = new Map();
	for (const r of f.refs) {
		const key = operation(r) + "\u0001" + r.param;
		const k = held.get(key) || { ref: r, count: 0, execs: new Set() };
		k.count++;
		k.execs.add(r.exec);
		held.set(key, k);
	}
	const list = [...held.values()].sort((a, b) => b.count - a.count);
	const listed = f.others.reduce((n, o) => n + o.refs.length, f.refs.length);
	return [table("Held by", ["Kernel or operation", "#Parameter", "#Graphs", "#Addresses"],
		list.slice(0, 12).map((k) => [h("code", {}, operation(k.ref)), k.ref.param,
			count(k.execs.size), count(k.count)])),
	list.length > 12 && h("p", { class: "quiet" }, "and " + plural(list.length - 12, "more place") + "."),
	h("p", {}, h("button", { type: "button", class: "plain",
		onclick: () => searchRefs("id:" + f.id) },
	"Show " + (listed === 1 ? "its captured address" : "its " + count(listed) + " captured addresses")),
	f.refs_total > f.refs.length && h("span", { class: "quiet" }, " (" +
		count(f.refs_total - f.refs.length) + " more are not listed here)"))];
}

function memoryOf(f) {
	const p = f.process;
	if (f.origin !== "launch") {
		const side = (b, title) => [h("div", {}, h("h3", {}, title),
			b ? [h("code", {}, b.base), " ", h("span", { class: "quiet" }, shapeText(b) +
				", generation " + b.generation),
				stackView(p, b.open, "Allocated by")] : h("p", { class: "quiet" }, "nothing")),
		b && b.close ? stackView(p, b.close, title === "Before" ? "Freed by" : title +
			": freed by") : null];
		return f.old || f.now ? h("div", { class: "pair" }, side(f.old, "Before"),
			side(f.now, "After")) : null;
	}
	const seen = new Set();
	const views = [];
	for (const r of f.refs) {
		const key = (r.old ? r.old.base + "/" + r.old.generation : "") +
			(r.now ? "/" + r.now.generation : "");
		if (seen.has(key))
			continue;
		seen.add(key);
		if (views.length < 4)
			views.push(h("div", { class: "pair" },
				h("div", {}, h("h3", {}, "Captured as ", r.slot && r.slot.name),
					h("code", {}, r.old ? r.old.base : r.value), " ",
						h("span", { class: "quiet" }, rangeText(r.old)),
					r.old && stackView(p, r.old.open, "Allocated by")),
				r.old && r.old.close ? stackView(p, r.old.close, "Freed by") : null,
				h("div", {}, h("h3", {}, r.reason === "slot-moved" ?
					"The slot is now at" : "At this address now"),
					r.now ? [h("code", {}, r.now.base), " ",
						h("span", { class: "quiet" }, rangeText(r.now)),
						stackView(p, r.now.open, "Allocated by")] :
							h("p", { class: "quiet" }, "nothing"))));
	}
	return [views, seen.size > views.length && h("p", { class: "quiet" },
		plural(seen.size - views.length, "more range") + " in the table of captured addresses.")];
}

function findingBody(f) {
	return h("div", { class: "body" },
		h("p", {}, f.text),
		f.severity !== "info" && report.advice[f.kind] && h("div", { class: "todo" },
			h("strong", {}, "Next: "), report.advice[f.kind]),
		f.inferred && h("p", { class: "quiet" },
			"Inferred from size and place of the program, not from a slot: ",
			f.detail),
		memoryOf(f),
		f.refs.length ? holders(f) : f.execs ? h("p", {},
			"Live graphs that hold the old binding: " + count(f.execs) + ".") : null,
		f.stack ? stackView(f.process, f.stack, f.kind === "stale-launch" ? "Launched by" :
			"Where it happened") : null,
		h("p", { class: "quiet" }, f.home ? reloadName(f.home) + " · " : "", moment(f.t), " · +",
			duration(f.t - f.process.first), f.exec ? " · graph exec " + f.exec : "",
			" · line " + f.line, " · id ", h("code", {}, f.id)),
		f.others.length > 0 && h("p", { class: "quiet" }, "The same again: ",
			f.others.slice(0, 20).map((o) =>
			(o.home ? reloadName(o.home) : "+" + duration(o.t - o.process.first)) +
				", line " + o.line).join("; "),
		f.others.length > 20 && " and " + count(f.others.length - 20) + " more", "."));
}

function findingView(f) {
	const details = h("details", { class: "finding", id: "finding-" + f.number },
		h("summary", {},
			h("span", { class: "severity " + f.severity }, f.severity),
			h("span", { class: "kind" }, f.kind, f.refused ? ", refused" : ""),
			h("span", { class: "subject" }, subjectOf(f), " ",
				h("span", { class: "moves mono" }, moveText(f))),
			h("span", { class: "times" }, f.refs.length || f.refs_total ?
				plural(f.refs_total, "address", "addresses") : f.home ? reloadName(f.home) : "",
			f.others.length ? ", " + (f.others.length + 1) + " times" : "")));
	details.addEventListener("toggle", () => {
		if (details.open && details.childElementCount === 1)
			details.append(findingBody(f));
	});
	return details;
}

let findingList = null; // of the process that is shown

function openFinding(finding) {
	const f = finding.shown;
	findingList.reach(f);
	const details = document.getElementById("finding-" + f.number);
	if (details.childElementCount === 1)
		details.append(findingBody(f));
	details.open = true;
	details.firstElementChild.focus({ preventScroll: true });
	details.scrollIntoView({ block: "start" });
}

function findingsSection(process) {
	const order = [...process.mistakes].sort((a, b) => worse[a.severity] - worse[b.severity] || a.t - b.t);
	let shown = order, drawn = 0;
	const list = h("div", {});
	const more = h("button", { type: "button", onclick: () => draw(FINDINGS_STEP) });
	const state = h("p", { class: "quiet", role: "status" });
	function draw(n) {
		list.append(...shown.slice(drawn, drawn + n).map(findingView));
		drawn = Math.min(shown.length, drawn + n);
		more.hidden = drawn >= shown.length;
		more.textContent = "Show " + Math.min(FINDINGS_STEP, shown.length - drawn) + " more";
		state.textContent = shown.length === order.length && drawn === shown.length ? "" :
			count(drawn) + " of " + plural(shown.length, "finding") + " drawn" +
			(shown.length < order.length ? ", " + count(order.length) + " in all" : "");
	}
	function filter(kind) {
		shown = kind ? order.filter((f) => f.kind === kind) : order;
		drawn = 0;
		list.replaceChildren();
		draw(FINDINGS_STEP);
	}
	findingList = {
		reach(f) {
			if (!shown.includes(f)) {
				select.value = "";
				filter("");
			}
			if (shown.indexOf(f) >= drawn)
				draw(shown.indexOf(f) + 1 - drawn);
		},
		all: () => draw(2000),
	};
	const kinds = findingsByKind(process, "info");
	const select = h("select", { id: "kinds", onchange: () => filter(select.value) },
		h("option", { value: "" }, "all kinds"),
		kinds.map((k) => h("option", { value: k.kind }, k.kind + " (" + count(k.count) + ")")));
	draw(FINDINGS_STEP);
	const first = list.firstElementChild;
	if (first && shown.length)
		first.append(findingBody(shown[0])), first.open = true;
	const left = process.exit ? process.exit.findings_left_out : 0;
	return h("section", { id: "findings", "aria-labelledby": "h-findings" },
		h("h2", { id: "h-findings" }, order.length ? plural(order.length, "finding") : "No findings",
			left ? " (" + count(left) + " more were only counted)" : ""),
		order.length > 0 && h("p", { class: "quiet" },
			"Most severe first. The same mistake has the same id in another run; " +
			"arenactl check --allow takes ids."),
		kinds.length > 1 && h("div", { class: "bar" }, h("label", { for: "kinds" }, "Show"),
			select, state),
		list, h("p", {}, more));
}
