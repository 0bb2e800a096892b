// SPDX-License-Identifier: Apache-2.0
// The verdict and what to do next; the list of processes if there are several.

const VERDICTS = {
	pass: "Pass: may serve",
	fail: "Fail: do not serve",
	unproven: "Unproven: not shown to be safe",
	none: "No verdict",
};

const VERDICT_RANK = { fail: 0, unproven: 1, none: 2, pass: 3 };

function findingsByKind(process, least) {
	const kinds = new Map();
	for (const f of process.mistakes.filter((m) => worse[m.severity] <= worse[least])) {
		const k = kinds.get(f.kind) || { kind: f.kind, severity: f.severity, count: 0, first: f };
		k.count++;
		if (worse[f.severity] < worse[k.severity])
			Object.assign(k, { severity: f.severity, first: f });
		kinds.set(f.kind, k);
	}
	return [...kinds.values()].sort((a, b) =>
		worse[a.severity] - worse[b.severity] || b.count - a.count);
}

// What to do, most urgent first: findings by kind, then what left the verdict unproven.
function nextSteps(process) {
	const steps = findingsByKind(process, "warn").map((k) =>
		h("li", {}, h("a", { href: "#finding-" + k.first.number, class: k.severity,
			onclick: () => openFinding(k.first) },
			plural(k.count, k.kind, k.kind)), ": ", report.advice[k.kind] || k.first.title + "."));
	if (process.exit && process.exit.unsafe)
		steps.unshift(h("li", {}, h("strong", {}, "The weights may be a mixture of two versions. "),
			"Run a full reload that puts every layer, or restart the process."));
	if (!process.exit)
		steps.push(h("li", {}, "Find out how the process ended; a report without an exit line " +
			"proves nothing."));
	for (const why of process.exit ? process.exit.unproven : [])
		steps.push(h("li", {}, "What was not seen: ", why, ". ",
			h("a", { href: "#coverage" }, "Coverage"), " has the reasons and remedies."));
	return steps;
}

function facts(process) {
	const exit = process.exit;
	const reloads = process.reloads.filter((r) => !r.verify);
	const refused = process.findings.filter((f) => f.refused).length;
	const items = [["Reloads", reloads.length ? [count(reloads.length), h("small", {}, " " +
		reloads.filter((r) => r.verdict === "pass").length + " passed")] : "none"]];
	for (const severity of ["error", "warn"])
		items.push([severity === "error" ? "Errors" : "Warnings",
			count(process.mistakes.filter((f) => f.severity === severity).length)]);
	items.push(["Launches refused", count(refused)]);
	items.push(["Captured addresses listed", [count(process.refs.length),
		h("small", {}, " of " + count(process.refs_total))]]);
	const graphs = exit && exit.counters["graphs.execs_opened"];
	if (graphs !== undefined && graphs !== null)
		items.push(["Graphs watched", count(graphs)]);
	if (exit && exit.counters["graphs.refs"])
		items.push(["Addresses in graphs", count(exit.counters["graphs.refs"])]);
	if (exit)
		items.push(["Generation served", count(exit.generation)]);
	return h("dl", { class: "facts" }, items.map(([name, value]) =>
		h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function lossBox(process) {
	const list = [...problemsOfReading(), ...losses(process)];
	if (report.refs_left_out)
		list.push(plural(report.refs_left_out, "captured address", "captured addresses") +
			" were left out of this page to keep it usable.");
	if (report.findings_filtered)
		list.push(plural(report.findings_filtered, "finding") +
			" were left out by the filters of the command line.");
	if (!list.length)
		return null;
	return h("div", { class: "alert", role: "note" },
		h("strong", {}, "This report is not complete."),
		h("ul", {}, list.map((t) => h("li", {}, t))));
}

function verdictSection(process) {
	const steps = nextSteps(process);
	const start = process.start;
	const from = start ? [start.host, "rank " + start.rank, "pid " + process.pid] : ["pid " + process.pid];
	const several = report.processes.length > 1;
	// What could not be read may belong to this process: then its own "pass" is none.
	const verdict = several ? process.verdict : report.verdict;
	return h("section", { id: several ? "process" : "verdict", "aria-labelledby": "h-verdict",
		tabindex: "-1" },
		h("p", { class: "who" }, h("strong", {}, commandOf(process)), " · ", from.join(" · "), " · ",
			moment(process.first)),
		h(several ? "h2" : "h1", { id: "h-verdict", class: verdict }, VERDICTS[verdict]),
		process.why && h("p", { class: "because" }, process.why),
		lossBox(process),
		steps.length ? [h("h3", {}, "What to do next"), h("ol", { class: "next" }, steps)] :
			h("p", {}, verdict === "pass" ?
				"Nothing was found that a graph would read wrongly. What was not looked at is under " :
				"See ", h("a", { href: "#coverage" }, "Coverage and losses"), "."),
		facts(process));
}

// Several processes: what holds for all of them comes first.
function processSection(current) {
	if (report.processes.length < 2)
		return null;
	const tally = {};
	const order = [...report.processes].sort((a, b) =>
		VERDICT_RANK[a.verdict] - VERDICT_RANK[b.verdict] || a.index - b.index);
	for (const p of report.processes)
		tally[p.verdict] = (tally[p.verdict] || 0) + 1;
	const number = (p, severity) => count(p.mistakes.filter((f) => f.severity === severity).length);
	return h("section", { id: "verdict", "aria-labelledby": "h-processes", tabindex: "-1" },
		h("h1", { id: "h-processes", class: report.verdict }, VERDICTS[report.verdict]),
		h("p", { class: "because" }, plural(report.processes.length, "process", "processes"), ": ",
			order.map((p) => p.verdict).filter((v, i, all) => all.indexOf(v) === i).map((v, i) =>
				[i ? ", " : "", h("span", { class: v }, tally[v] + " " + v)])),
		h("div", { class: "tall", tabindex: "0", role: "region", "aria-label": "Processes" },
			table(null, ["Program", "Rank", "#pid", "Verdict", "#Errors", "#Warnings",
			"#Reloads", "Started", "Why"],
			order.map((p) => h("tr", { "aria-current": p === current ? "true" : null },
				h("td", {}, h("button", { class: "plain", type: "button",
					onclick: () => show(p.index) }, commandOf(p))),
				h("td", {}, p.start ? p.start.rank : "?"),
				h("td", { class: "num" }, p.pid),
				h("td", { class: p.verdict }, p.verdict),
				h("td", { class: "num" }, number(p, "error")),
				h("td", { class: "num" }, number(p, "warn")),
				h("td", { class: "num" }, count(p.reloads.filter((r) => !r.verify).length)),
				h("td", {}, moment(p.first).slice(11, 23)),
				h("td", { class: "quiet words" }, p.why || ""))))),
		h("p", { class: "quiet" }, "The sections below are about the marked process."));
}
