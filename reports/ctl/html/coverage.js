// SPDX-License-Identifier: Apache-2.0
// What was not seen, what was lost, and in what environment all of it is true.

function coverageSection(process) {
	const exit = process.exit;
	const body = [];
	const lost = [...problemsOfReading(), ...losses(process)];
	body.push(h("h3", {}, "Lost"), lost.length ? h("ul", {}, lost.map((t) => h("li", {}, t))) :
		h("p", {}, "Nothing: every line was read, every finding and every captured address that a finding rests on is here."));
	if (!exit) {
		body.push(h("h3", {}, "Not seen"), h("p", {},
			"Not known: counts of what was not seen come with the exit line."));
	} else {
		const met = Object.entries(exit.coverage).filter(([, n]) => n > 0);
		const none = Object.entries(exit.coverage).filter(([, n]) => n === 0);
		body.push(h("h3", {}, "Not seen"), met.length ?
			table(null, ["Reason", "#Count", "Weight", "What it means", "Names"],
			met.map(([key, n]) => {
				const [decisive, meaning] = Object.hasOwn(report.coverage, key) ?
					report.coverage[key] : [true, "unknown to this version"];
				return [h("code", {}, key), count(n), decisive ?
					h("span", { class: "warn" }, "makes it unproven") : "for information",
					meaning, (exit.noted[key] || []).join(", ")];
			})) : h("p", {}, "Nothing of what is looked for was met."),
		h("details", { class: "more" }, h("summary", {}, plural(none.length, "reason") +
			" that were looked for and not met"),
			h("ul", {}, none.map(([key]) => h("li", {}, h("code", {}, key), ": ",
				Object.hasOwn(report.coverage, key) ? report.coverage[key][1] : "")))));
	}
	for (const c of process.crosses)
		body.push(h("p", { class: "warn" }, "CUPTI and the walk of a graph saw different addresses: " +
			Object.entries(c.reasons).filter(([, n]) => n).map(([k, n]) => n + " " +
				k).join(", ") + "."));
	body.push(h("p", { class: "quiet" },
		"What the method cannot see at all (pointers in device memory, how far a kernel reads, " +
		"allocators that tell nothing) is listed in arena-shim(7) and never counted here."));
	return h("section", { id: "coverage", "aria-labelledby": "h-coverage" },
		h("h2", { id: "h-coverage" }, "Coverage and losses"), body);
}

function driverText(v) {
	return v ? "CUDA " + Math.floor(v / 1000) + "." + Math.floor(v % 1000 / 10) : "not known";
}

function environmentSection(process) {
	const s_ = process.start, exit = process.exit;
	const body = [s_ ? pairs([["Program", s_.exe], ["Started as", s_.argv0],
		["Host, rank", s_.host + ", rank " + s_.rank],
		["Process", process.pid + ", parent " + s_.ppid],
			["From, to", moment(process.first) + " to " + moment(process.last) +
			" (" + duration(process.last - process.first) + ")"],
		["Driver", driverText(s_.driver_version)], ["Library", s_.library + ", version " + s_.version],
		["Stacks by", s_.unwinder], ["LD_PRELOAD", s_.ld_preload || "empty"],
			["Report", process.file + ", line " + process.line]]) :
		h("p", {}, "Not known: the first line of the process is missing.")];
	const options = Object.entries(process.options);
	if (options.length)
		body.push(h("h3", {}, "Options in effect"), pairs(options.map(([k, v]) => [h("code", {},
			k), v || "(empty)"])));
	if (exit) {
		const counters = Object.entries(exit.counters);
		body.push(h("details", { class: "more" }, h("summary", {}, plural(counters.length, "counter")),
			pairs(counters.map(([k, v]) => [h("code", {}, k), typeof v === "number" ?
				count(v) : v]))),
		h("details", { class: "more" }, h("summary", {},
			plural(exit.entries.length, "driver function") + " called"),
			h("p", {}, h("code", {}, exit.entries.join(" ")))));
	}
	if (process.modules.length)
		body.push(h("details", { class: "more" }, h("summary", {},
			plural(process.modules.length, "module") + " in stacks"),
			table(null, ["#Id", "Path", "Build-id"], process.modules.map(([id, path, build]) =>
				[id, path, h("code", {}, build || "none")]))));
	return h("section", { id: "environment", "aria-labelledby": "h-environment" },
		h("h2", { id: "h-environment" }, "Environment and options"), body);
}
