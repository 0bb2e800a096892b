// SPDX-License-Identifier: Apache-2.0
// Elements and formats. Whatever comes from a report is put into the page as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

// Characters that would hide or reorder a hostile name are shown by their number.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function clean(text) {
	return String(text).replace(HIDDEN, (c) =>
		"\\u{" + c.codePointAt(0).toString(16) + "}");
}

function fill(element, attributes, children) {
	for (const [name, value] of Object.entries(attributes || {})) {
		if (value === null || value === undefined || value === false)
			continue;
		if (name.startsWith("on"))
			element.addEventListener(name.slice(2), value);
		else
			element.setAttribute(name, value === true ? "" : clean(value));
	}
	for (const child of children.flat(Infinity)) {
		if (child === null || child === undefined || child === false)
			continue;
		element.append(child instanceof Node ? child : clean(child));
	}
	return element;
}

const h = (tag, attributes, ...children) =>
	fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
	fill(document.createElementNS(SVG, tag), attributes, children);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

function bytes(n) {
	let unit = 0;
	while (n >= 1024 && unit < UNITS.length - 1) {
		n /= 1024;
		unit++;
	}
	return (Number.isInteger(n) ? n : n.toFixed(n < 10 ? 2 : 1)) + " " + UNITS[unit];
}

function duration(ns) {
	const s_ = ns / 1e9;
	if (s_ >= 5400)
		return Math.floor(s_ / 3600) + " h " + Math.round(s_ % 3600 / 60) + " min";
	if (s_ >= 90)
		return Math.floor(s_ / 60) + " min " + Math.round(s_ % 60) + " s";
	for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
		if (ns >= size)
			return Number((ns / size).toPrecision(3)) + " " + unit;
	return Math.round(ns) + " ns";
}

const count = (n) => n.toLocaleString("en-US");
const plural = (n, one, many) => count(n) + " " + (n === 1 ? one : many || one + "s");

const moment = (ns) =>
	new Date(report.origin_ms + ns / 1e6).toISOString().replace("T", " ").replace("Z", " UTC");

const baseName = (path) => path.slice(path.lastIndexOf("/") + 1) || path;

// An address sorts by its length, then by its digits: no precision is lost.
function byAddress(a, b) {
	return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

const worse = { error: 0, warn: 1, info: 2 };

function rangeText(r) {
	return r ? bytes(r.size) + " " + r.kind + ", generation " + r.generation : "nothing";
}

function shapeText(b) {
	const shape = b.shape.length ? " [" + b.shape.join(" × ") + "]" : "";
	return (b.dtype ? b.dtype + shape + ", " : "") + bytes(b.bytes) +
		(b.layout ? ", layout " + b.layout : "");
}

// A short table. Rows are arrays of children; a column named with a leading # holds numbers.
function table(caption, heads, rows, attributes) {
	const number = heads.map((head) => head.startsWith("#"));
	const kind = (i) => number[i] ? "num" : null;
	return h("div", { class: "scroll" }, h("table", attributes,
		caption && h("caption", {}, caption),
		h("thead", {}, h("tr", {}, heads.map((head, i) =>
			h("th", { scope: "col", class: kind(i) }, head.replace("#", ""))))),
		h("tbody", {}, rows.map((row) => row instanceof Node ? row :
			h("tr", {}, row.map((cell, i) => h("td", { class: kind(i) }, cell)))))));
}

const pairs = (list) => h("dl", { class: "pairs" }, list.filter((p) => p).map(([name, value]) =>
	[h("dt", {}, name), h("dd", {}, value)]));
