// SPDX-License-Identifier: Apache-2.0
// The report as arenactl wrote it into the page. Strings and ranges that come often are written out
// where they come first and are numbers after that; rows() undoes it, into columns.

const report = JSON.parse(document.getElementById("arena-data").textContent);

const REF_COLUMNS = ["exec", "node", "nodeKind", "kernel", "param", "offset", "confidence", "reason",
	"value", "old", "now", "slot"];

// One dictionary: a number is an index into what was met, anything else is new (null stays null).
function dictionary(make) {
	const met = [];
	return (item) => {
		if (item === null || typeof item === "number")
			return item === null ? null : met[item];
		met.push(make(item));
		return met[met.length - 1];
	};
}

const text = dictionary((item) => item);

function decode(process, index) {
	const range = dictionary(([base, size, generation, kind, open, close]) =>
		({ base, size, generation, kind: text(kind), open, close }));
	const slot = dictionary(([arena, name, base, now]) =>
		({ name: (arena ? arena + "/" : "") + name, base, now }));
	process.index = index;
	process.refs = [];
	for (const [number, finding] of process.findings.entries()) {
		finding.number = number;
		finding.process = process;
		finding.refs = finding.refs.map((r) => ({
			exec: r[0], node: r[1], nodeKind: text(r[2]), kernel: text(r[3]), param: r[4],
			offset: r[5], confidence: text(r[6]), reason: text(r[7]), value: r[8],
			old: range(r[9]), now: range(r[10]), slot: slot(r[11]), finding,
		}));
		for (const ref of finding.refs)
			process.refs.push(ref);
	}
	// The same mistake again (same id) is shown once, where a reload speaks of it if one does.
	const first = new Map();
	for (const finding of process.findings) {
		const key = finding.id + finding.severity;
		const there = first.get(key);
		if (!there || there.origin === "verify" && finding.origin !== "verify")
			first.set(key, finding);
	}
	for (const finding of process.findings) {
		finding.shown = first.get(finding.id + finding.severity);
		finding.others = [];
	}
	for (const finding of process.findings)
		if (finding.shown !== finding)
			finding.shown.others.push(finding);
	process.mistakes = [...first.values()];
	// The reload that a finding belongs to is the one whose line it stands in.
	const lines = new Map(process.reloads.map((r) => [r.line, r]));
	for (const finding of process.findings)
		finding.home = finding.origin === "launch" ? null : lines.get(finding.line) || null;
}

report.processes.forEach(decode);

const demangled = (name) => Object.hasOwn(report.names, name) ? report.names[name] : name;
const operation = (ref) => ref.kernel === null ? ref.nodeKind : demangled(ref.kernel).replace(/^void /, "");

function commandOf(process) {
	return process.start ? baseName(process.start.argv0 || process.start.exe) : "unknown program";
}

// What is missing from this process, as sentences. No part of the page may look complete without it.
function losses(process) {
	const list = [];
	if (!process.start)
		list.push("Its first line is missing: program and options are not known.");
	if (!process.exit)
		list.push("It has no exit line: it was killed, or was still running when this was made. " +
			"What it did after its last line is not known.");
	else {
		if (process.exit.lines_lost)
			list.push(plural(process.exit.lines_lost, "line") + " could not be written.");
		if (process.exit.findings_left_out)
			list.push(plural(process.exit.findings_left_out, "finding") +
				" came after the limit of a report and were only counted.");
	}
	const unlisted = process.refs_total - process.refs.length;
	if (unlisted > 0)
		list.push(plural(unlisted, "captured address", "captured addresses") + " of " +
			count(process.refs_total) + " that findings rest on are counted, not listed.");
	for (const [type, n] of Object.entries(process.not_kept))
		if (n && type !== "launch")
			list.push(plural(n, type + " line") + " are in the file, but not in this page.");
	if (process.interleaved)
		list.push("Lines of another process stand between its own: stacks may be the other's.");
	return list;
}

function problemsOfReading() {
	const p = report.problems;
	const list = [];
	if (p.problems)
		list.push("Reading met " + plural(p.problems, "problem") +
			"; arenactl printed where when it made this page.");
	if (p.files_unreadable)
		list.push(plural(p.files_unreadable, "file") + " could not be read.");
	if (p.truncated)
		list.push(plural(p.truncated, "file") + " ends in the middle of a line.");
	if (p.lines_bad)
		list.push(plural(p.lines_bad, "line") + " were damaged and left out (" +
			bytes(p.lost_bytes) + ").");
	if (p.lines_unknown)
		list.push(plural(p.lines_unknown, "line") + " are of a type that this version does not know.");
	return list;
}
