// SPDX-License-Identifier: Apache-2.0
// Puts the page together for one process; keys, print, where one is in the page.

const SECTIONS = [["verdict", "Verdict"], ["process", "Process"], ["timeline", "Timeline"],
	["findings", "Findings"],
	["map", "Address space"], ["refs", "Captured addresses"], ["coverage", "Coverage"],
		["environment", "Environment"]];

function show(index) {
	const process = report.processes[index];
	const main = document.getElementById("main");
	main.replaceChildren(...[processSection(process), verdictSection(process), timelineSection(process),
		findingsSection(process), mapSection(process), refsSection(process), coverageSection(process),
		environmentSection(process)].filter((section) => section));
	refTable.count();
	refTable.paint();
	refTable.describe();
	document.getElementById("nav").replaceChildren(...SECTIONS.filter(([id]) => document.getElementById(id))
		.map(([id, name]) => h("a", { href: "#" + id }, name)));
	document.title = (report.processes.length > 1 ? process.verdict : report.verdict) + ": " +
		commandOf(process) + ", arena report";
	watchSections();
}

// Marks in the navigation which section is read.
function watchSections() {
	const links = new Map([...document.querySelectorAll("#nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
	const seen = new IntersectionObserver((entries) => {
		for (const e of entries.filter((entry) => entry.isIntersecting)) {
			for (const a of links.values())
				a.removeAttribute("aria-current");
			links.get(e.target.id).setAttribute("aria-current", "true");
		}
	}, { rootMargin: "-15% 0px -75% 0px" });
	for (const section of document.querySelectorAll("main > section"))
		seen.observe(section);
}

function start() {
	document.getElementById("foot").append(h("p", {}, "arenactl " + report.tool + " · made " +
		report.made + (report.inputs.length ? " from " : "") +
		report.inputs.slice(0, 8).join(", ") + (report.inputs.length > 8 ? " and " +
			(report.inputs.length - 8) + " more" : "") +
		" · reads nothing from a network"));
	if (!report.processes.length) {
		document.getElementById("main").replaceChildren(h("section", { id: "verdict" },
			h("h1", { class: "unproven" }, "No process in these files"), h("ul", {},
				problemsOfReading().map((t) => h("li", {}, t)))));
		return;
	}
	const worst = [...report.processes].sort((a,
		b) => VERDICT_RANK[a.verdict] - VERDICT_RANK[b.verdict])[0];
	show(worst.index);
	document.addEventListener("keydown", (e) => {
		if (e.key === "/" && !e.target.closest("input, select, textarea")) {
			e.preventDefault();
			document.getElementById("refs").scrollIntoView();
			document.getElementById("search").focus({ preventScroll: true });
		}
	});
	addEventListener("resize", () => refTable.paint());
	addEventListener("beforeprint", () => {
		findingList.all();
		for (const details of [...document.querySelectorAll("details.finding")].slice(0, 100)) {
			if (details.childElementCount === 1)
				details.append(findingBody(findingOf(details)));
			details.open = true;
		}
		refTable.print(true);
	});
	addEventListener("afterprint", () => refTable.print(false));
}

function findingOf(details) {
	return refTable.process.findings[Number(details.id.slice("finding-".length))];
}

start();
