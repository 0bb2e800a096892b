// SPDX-License-Identifier: Apache-2.0
// Captured addresses: which graph, node, kernel and parameter holds what. Rows exist only while they
// are seen; a search runs in slices, so that the page answers meanwhile. Words of a search are joined
// by "and"; FIELD:WORD looks into one column.

const ROW_PX = 26, VIEW_MOST_PX = 8e6, SLICE = 20000, PRINTED = 100, PAINTED = 200;

const slotName = (r) => r.slot ? r.slot.name : "";
const brief = (range) => range ? bytes(range.size) + " " + range.kind : "nothing";
const paramText = (r) => r.param + " +" + r.offset;

// name, head, text of a cell, what it sorts by, shown on a narrow screen?
const COLUMNS = [
	["exec", "Graph", (r) => r.exec, (r) => r.exec, false],
	["node", "Node", (r) => r.node, (r) => r.node, false],
	["kernel", "Kernel or operation", operation, operation, true],
	["param", "Parameter", paramText, (r) => r.param * 65536 + r.offset, false],
	["value", "Address", (r) => r.value, null, true],
	["slot", "Slot", slotName, slotName, false],
	["old", "Captured as", (r) => brief(r.old), (r) => r.old ? r.old.size : -1, false],
	["reason", "Reason", (r) => r.reason, (r) => r.reason, true],
	["now", "Now there", (r) => brief(r.now), (r) => r.now ? r.now.size : -1, false],
].map(([name, head, cell, key, narrow]) => ({ name, head, cell, key, narrow }));

// What FIELD:WORD compares with. Numbers and addresses must be equal, text must contain the word.
const EXACT = { exec: (r) => r.exec, node: (r) => r.node, param: (r) => r.param,
	id: (r) => r.finding.id, generation: (r) => r.old ? r.old.generation : "" };
const PART = { kernel: operation, value: (r) => r.value, slot: slotName, reason: (r) => r.reason,
	confidence: (r) => r.confidence, old: (r) => r.old ? r.old.base : "", now: (r) => r.now ?
		r.now.base : "",
	kind: (r) => r.finding.kind };

function haystack(r) {
	return (operation(r) + " " + (r.kernel || "") + " " + r.value + " " + slotName(r) + " " +
		r.reason + " " +
		(r.old ? r.old.base + " " + r.old.kind : "") + " " + (r.now ? r.now.base : "") + " " +
			r.nodeKind).toLowerCase();
}

function matcher(query) {
	const tests = query.toLowerCase().split(/\s+/).filter((w) => w).map((word) => {
		const [, field, value] = /^([a-z]+):(.+)$/.exec(word) || [];
		if (field && Object.hasOwn(EXACT, field))
			return (r) => String(EXACT[field](r)) === value;
		if (field && Object.hasOwn(PART, field))
			return (r) => String(PART[field](r)).toLowerCase().includes(value);
		return (r) => haystack(r).includes(word);
	});
	return (r) => tests.every((t) => t(r));
}

let refTable = null; // of the process that is shown

function searchRefs(query) {
	refTable.search(query);
	document.getElementById("refs").scrollIntoView();
	document.getElementById("search").focus({ preventScroll: true });
}

class RefTable {
	constructor(process) {
		this.process = process;
		this.all = process.refs;
		this.rows = this.all;
		this.sorted = { column: null, down: false };
		this.active = this.rows.length ? 0 : -1;
		this.run = 0;
		this.build();
	}

	build() {
		this.input = h("input", { type: "search", id: "search", autocomplete: "off",
			spellcheck: "false",
			placeholder: "kernel, address, slot, reason; exec:3 param:1 old:0x7f…",
				"aria-controls": "ref-view",
			oninput: () => this.search(this.input.value) });
		this.state = h("p", { class: "quiet", role: "status" });
		this.head = h("div", { role: "row", class: "head" }, COLUMNS.map((c) =>
			h("div", { role: "columnheader", "aria-sort": "none", "data-column": c.name,
				"data-wide": !c.narrow },
				h("button", { type: "button", onclick: () => this.sort(c) }, c.head))));
		this.pad = h("div", { class: "pad", "aria-hidden": "true" });
		this.view = h("div", { class: "view", id: "ref-view", tabindex: "0", role: "rowgroup",
			"aria-label": "Captured addresses; arrow keys move",
			onscroll: () => this.paint(), onkeydown: (e) => this.key(e),
			onclick: (e) => this.click(e) }, this.pad);
		this.grid = h("div", { class: "grid", role: "grid", "aria-label": "Captured addresses",
			"aria-colcount": COLUMNS.length, "aria-rowcount": this.rows.length + 1 },
				this.head, this.view);
		this.detail = h("div", { class: "detail", id: "ref-detail", "aria-live": "polite" });
	}

	// Where the first row to be painted is. Beyond VIEW_MOST_PX, which browsers cannot scroll, the
	// scroll bar stands for a share of the rows.
	span() {
		const full = this.rows.length * ROW_PX;
		return { full, px: Math.min(full, VIEW_MOST_PX) };
	}

	firstRow() {
		const { full, px } = this.span();
		const seen = this.view.clientHeight;
		if (full === px || px <= seen)
			return Math.floor(this.view.scrollTop / ROW_PX);
		return Math.floor(this.view.scrollTop / (px - seen) * (full - seen) / ROW_PX);
	}

	paint() {
		const { full, px } = this.span();
		this.pad.style.height = px + "px";
		const first = Math.max(0, Math.min(this.firstRow(), this.rows.length - 1) - 4);
		const visible = Math.min(PAINTED, Math.ceil((this.view.clientHeight || 400) / ROW_PX) + 10);
		const shift = full === px ? 0 : this.view.scrollTop - this.firstRow() * ROW_PX;
		const rows = [];
		for (let i = first; i < Math.min(this.rows.length, first + visible); i++)
			rows.push(this.row(i, i * ROW_PX + shift));
		if (!this.rows.length)
			rows.push(h("p", { class: "empty" }, this.all.length ? "No captured address matches." :
				"No finding of this process rests on a captured address."));
		this.view.replaceChildren(this.pad, ...rows);
		this.view.setAttribute("aria-activedescendant", "ref-" + this.active);
	}

	row(i, top) {
		const r = this.rows[i];
		const row = h("div", { role: "row", class: i === this.active ? "row on" : "row", id: "ref-" + i,
			"aria-rowindex": i + 2, "aria-selected": i === this.active ? "true" : "false",
				"data-row": i },
		COLUMNS.map((c) => h("span", { role: "gridcell", "data-wide": !c.narrow, title: c.cell(r),
			class: c.name === "value" ? "mono" : null }, c.cell(r))));
		row.style.top = top + "px";
		return row;
	}

	select(i) {
		this.active = Math.max(0, Math.min(this.rows.length - 1, i));
		const { full, px } = this.span();
		const seen = this.view.clientHeight;
		const share = full === px || px <= seen ? 1 : (px - seen) / (full - seen);
		const top = this.active * ROW_PX * share;
		const under = (this.active + 1) * ROW_PX * share - seen;
		if (this.view.scrollTop > top)
			this.view.scrollTop = top;
		else if (this.view.scrollTop < under)
			this.view.scrollTop = Math.ceil(under);
		this.paint();
		this.describe();
	}

	click(e) {
		const row = e.target.closest("[data-row]");
		if (row)
			this.select(Number(row.dataset.row));
	}

	key(e) {
		const page = Math.max(1, Math.floor(this.view.clientHeight / ROW_PX) - 1);
		const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity,
			End: Infinity }[e.key];
		if (!this.rows.length || e.ctrlKey || e.altKey || e.metaKey)
			return;
		if (e.key === "Enter")
			openFinding(this.rows[this.active].finding);
		else if (step === undefined)
			return;
		else
			this.select(this.active + step);
		e.preventDefault();
	}

	describe() {
		const r = this.rows[this.active];
		if (!r) {
			this.detail.replaceChildren(h("p", { class: "quiet" }, "No row is selected."));
			return;
		}
		const p = this.process;
		this.detail.replaceChildren(h("h3", { class: "mono" }, r.value),
			pairs([["Held by", ["graph exec " + r.exec + ", node " + r.node + ", " +
				r.nodeKind + ", parameter " + r.param +
				", byte " + r.offset + ", confidence " + r.confidence]],
			["Kernel", r.kernel !== null && [h("code", {}, operation(r)),
				operation(r) !== r.kernel ?
				h("span", { class: "quiet" }, " (", r.kernel, ")") : ""]],
			["Finding", h("button", { type: "button", class: "plain",
				onclick: () => openFinding(r.finding) },
				r.finding.kind + ": " + r.finding.title)],
			["Slot", r.slot && r.slot.name + ", bound to " + r.slot.base + " when captured, now " +
				(r.slot.now === "0x0" ? "to nothing" : "to " + r.slot.now)],
			["Captured as", r.old ? r.old.base + ", " + rangeText(r.old) : "not known"],
			["Now", r.now ? r.now.base + ", " + rangeText(r.now) :
				"nothing lives there"]].filter((x) => x[1])),
			h("details", { class: "more" }, h("summary", {}, "Stacks"), h("div", { class: "pair" },
				stackView(p, r.old && r.old.open, "Allocated by"),
				r.old && r.old.close ? stackView(p, r.old.close, "Freed by") : null,
				r.now ? stackView(p, r.now.open, "Now there: allocated by") : null)));
	}

	show(rows) {
		this.rows = rows;
		this.active = rows.length ? 0 : -1;
		this.grid.setAttribute("aria-rowcount", rows.length + 1);
		this.view.scrollTop = 0;
		this.count();
		this.paint();
		this.describe();
	}

	count(busy) {
		const { process, rows, all } = this;
		const missing = process.refs_total - all.length;
		this.state.textContent = (busy || (rows.length === all.length ? count(all.length) :
			count(rows.length) + " of " + count(all.length))) + " listed" +
			(missing > 0 ? ", " + count(missing) + " more were only counted" : "");
	}

	// Slices leave the page alive; a newer search ends an older one.
	search(query) {
		const run = ++this.run;
		const match = matcher(query);
		const found = [];
		let at = 0;
		if (this.input.value !== query)
			this.input.value = query;
		const slice = () => {
			if (run !== this.run)
				return;
			for (const end = Math.min(this.all.length, at + SLICE); at < end; at++)
				if (match(this.all[at]))
					found.push(this.all[at]);
			if (at < this.all.length) {
				this.count("searched " + Math.floor(at / this.all.length * 100) +
					" % of " + count(this.all.length));
				setTimeout(slice, 0);
				return;
			}
			this.show(query.trim() ? this.order(found) : this.order([...this.all]));
		};
		slice();
	}

	order(rows) {
		const { column, down } = this.sorted;
		if (!column)
			return rows;
		const sign = down ? -1 : 1;
		if (!column.key)
			return rows.sort((a, b) => sign * byAddress(a.value, b.value));
		return rows.map((r) => [column.key(r), r])
			.sort(([a], [b]) => a < b ? -sign : a > b ? sign : 0).map(([, r]) => r);
	}

	sort(column) {
		this.sorted = { column, down: this.sorted.column === column && !this.sorted.down };
		for (const cell of this.head.children)
			cell.setAttribute("aria-sort", cell.dataset.column !== column.name ? "none" :
				this.sorted.down ? "descending" : "ascending");
		this.show(this.order([...this.rows]));
	}

	// On paper: the first rows, and how many there are.
	print(on) {
		this.note.hidden = !on || this.rows.length <= PRINTED;
		this.note.textContent = "Printed are the first " + PRINTED + " of " +
			count(this.rows.length) + " rows.";
		if (on)
			this.view.replaceChildren(...this.rows.slice(0, PRINTED).map((_, i) => this.row(i, 0)));
		else
			this.paint();
	}
}

function refsSection(process) {
	refTable = new RefTable(process);
	refTable.note = h("p", { class: "quiet", hidden: true });
	return h("section", { id: "refs", "aria-labelledby": "h-refs" },
		h("h2", { id: "h-refs" }, "Captured addresses"),
		h("p", { class: "quiet" },
			"What graphs hold and findings rest on: graph, kernel, parameter. A click on a head sorts; " +
			"arrow keys move, Enter opens the finding."),
		h("div", { class: "bar" }, h("label", { for: "search" }, "Search"), refTable.input,
			refTable.state),
		refTable.grid, refTable.detail, refTable.note);
}
