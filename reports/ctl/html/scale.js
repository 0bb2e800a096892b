// SPDX-License-Identifier: Apache-2.0
// A scale for what is mostly gaps (times, addresses): the order is exact, distances grow with their
// logarithm, and gaps far above the others are cut and labelled.

// points: numbers. width: of the drawing. least: the distance that gets one unit.
// phases: [from, to], in order; each gets about the same room, however little happens in it.
// Gives at(x) and cuts: [{at, gap}].
// isGap(from, to): nothing is there; it gets little room.
function gapScale(points, width, least, longGap, phases, isGap) {
	const sorted = [...new Set(points)].sort((a, b) => a - b);
	if (sorted.length < 2)
		return { at: () => width / 2, cuts: [], first: sorted[0] || 0, last: sorted[0] || 0 };
	const weights = [];
	for (let i = 1; i < sorted.length; i++) {
		const d = sorted[i] - sorted[i - 1];
		const gap = isGap ? isGap(sorted[i - 1], sorted[i]) : d >= longGap;
		weights.push(gap ? 3 : 0.35 + Math.log2(1 + d / least));
	}
	if (phases)
		evenOut(sorted, weights, phases);
	const sum = weights.reduce((a, b) => a + b, 0);
	const places = [0];
	for (const w of weights)
		places.push(places[places.length - 1] + w / sum * width);
	const cuts = [];
	for (let i = 1; i < sorted.length; i++)
		if (sorted[i] - sorted[i - 1] >= longGap)
			cuts.push({ at: (places[i] + places[i - 1]) / 2, gap: sorted[i] - sorted[i - 1] });
	return {
		first: sorted[0],
		last: sorted[sorted.length - 1],
		cuts,
		at(x) {
			let low = 0, high = sorted.length - 1;
			while (high - low > 1) {
				const middle = (low + high) >> 1;
				if (sorted[middle] <= x)
					low = middle;
				else
					high = middle;
			}
			const part = (x - sorted[low]) / (sorted[high] - sorted[low]);
			return places[low] + Math.min(1, Math.max(0, part)) * (places[high] - places[low]);
		},
	};
}

// Scales the weights of each phase: the fullest gets at most three times the room of the emptiest.
function evenOut(sorted, weights, phases) {
	const parts = phases.map(([from, to]) => {
		const inside = [];
		for (let i = 0; i < weights.length; i++)
			if (sorted[i] >= from && sorted[i + 1] <= to)
				inside.push(i);
		return { inside, sum: inside.reduce((a, i) => a + weights[i], 0) };
	}).filter((p) => p.inside.length);
	const most = Math.max(...parts.map((p) => p.sum));
	for (const p of parts) {
		const room = 1 + 2 * p.sum / most;
		for (const i of p.inside)
			weights[i] *= room / p.sum;
	}
}

// Those that are so far from the one before that their labels do not meet.
function apart(list, least) {
	let last = -Infinity;
	return list.filter((c) => {
		if (c.at - last < least)
			return false;
		last = c.at;
		return true;
	});
}

// At most most of the list, evenly, with its first and last.
function thin(list, most) {
	if (list.length <= most)
		return list;
	const step = (list.length - 1) / (most - 1);
	return Array.from({ length: most }, (_, i) => list[Math.round(i * step)]);
}
