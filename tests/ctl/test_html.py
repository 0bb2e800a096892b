#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `arenactl report --format=html`, in a headless Chromium: test_html.py ARENACTL

It renders without a complaint and without a request, search and keyboard work, names are data and
never markup, nothing looks complete that is not, and 100,000 captured addresses do not freeze it
(times are printed, not judged). Exit: 0, 1, or 77 without a Chromium (what needs none is tested first).
"""
import base64
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAKE = ROOT / "tests/ctl/make_report.py"
STATE = "document.querySelector('#refs [role=status]').textContent"
ROWS = "[...document.querySelectorAll('#ref-view [role=row]')]"
CHROMIUM = browser.find()
ARENACTL = sys.argv[1] if len(sys.argv) > 1 else "arenactl"

# Contrast of two colours as WCAG 2 has it.
CONTRAST = """(() => {
	const canvas = document.createElement("canvas").getContext("2d");
	const style = getComputedStyle(document.documentElement);
	const light = (name) => {
		canvas.fillStyle = style.getPropertyValue(name).trim();
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => {
			c /= 255;
			return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
		});
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	return ["--paper", "--sheet"].flatMap((ground) => ["--ink", "--quiet", "--link", "--fail", "--warn", "--pass"]
		.map((name) => {
			const [a, b] = [light(ground), light(name)].sort((x, y) => y - x);
			return [ground, name, (a + 0.05) / (b + 0.05)];
		}));
})()"""


def report(directory, name, *arguments):
    path = directory / f"{name}.jsonl"
    with open(path, "wb") as file:
        subprocess.run([sys.executable, MAKE, *arguments], stdout=file, check=True)
    return path


def page(directory, name, *reports, status=0):
    path = directory / f"{name}.html"
    p = subprocess.run([ARENACTL, "report", "--format=html", "--no-symbols", "-q", "-o", path, *reports],
                       capture_output=True, text=True, check=False)
    if p.returncode != status:
        raise AssertionError(f"arenactl: {p.returncode}: {p.stdout}{p.stderr}")
    return path


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return re.search(r'<script type="application/json" id="arena-data">(.*?)</script>', text, re.S).group(1)


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.report = report(cls.dir, "engine", "--refs", "1000")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()


class Static(Base):
    """What can be said of the bytes."""

    def test_every_kind_has_advice(self):
        kinds = re.findall(r'^FINDING\(\w+,\s*"([^"]+)"', (ROOT / "arena/findings.def").read_text(), re.M)
        advice = re.findall(r'^ADVICE\("([^"]+)"', (ROOT / "reports/ctl/advice.def").read_text(), re.M)
        self.assertEqual(kinds, advice)

    def test_hostile_names_do_not_end_the_data(self):
        path = page(self.dir, "hostile", report(self.dir, "hostile", "--refs", "64", "--hostile"))
        data = data_of(path)
        self.assertNotIn("<", data)
        self.assertIn("</script><script>", json.dumps(json.loads(data)))

    def test_the_policy_names_script_and_style_and_no_source(self):
        text = page(self.dir, "policy", self.report).read_text(encoding="utf-8")
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text).group(1)
        for tag in ("style", "script"):
            body = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S).group(1)
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            self.assertIn(f"{tag}-src 'sha256-{digest}';", policy)
        self.assertTrue(policy.startswith("default-src 'none'"))
        self.assertNotRegex(policy, r"https?:|unsafe|\*")
        self.assertNotRegex(re.sub(r"http://www.w3.org/2000/svg", "", text), r"https?://|@import|url\((?!#)")

    def test_filters_are_said(self):
        path = self.dir / "filtered.html"
        subprocess.run([ARENACTL, "report", "--format=html", "--kind=moved", "-o", path, self.report], check=True)
        data = json.loads(data_of(path))
        self.assertEqual({f["kind"] for f in data["processes"][0]["findings"]}, {"moved"})
        self.assertGreater(data["findings_filtered"], 0)


@unittest.skipUnless(CHROMIUM, "no Chromium")
class Page(Base):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = browser.Browser(CHROMIUM)
        cls.page = page(cls.dir, "engine", cls.report)

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        super().tearDownClass()

    def open(self, path=None, width=1280, height=900):
        self.browser.size(width, height)
        self.browser.media()
        self.browser.open(path or self.page)
        self.assertEqual(self.browser.complaints, [])

    def text(self, selector):
        return self.browser.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def focus(self):
        return self.browser.run("(document.activeElement.id || document.activeElement.className || "
                                "document.activeElement.tagName) + ''")

    def search(self, words):
        self.browser.run("document.getElementById('search').value = ''; document.getElementById('search').focus()")
        if words:
            self.browser.call("Input.insertText", text=words)
        else:
            self.browser.run("document.getElementById('search').dispatchEvent(new Event('input'))")
        self.browser.wait(f"!{STATE}.startsWith('searched')")
        return self.browser.run(STATE)

    def test_renders(self):
        self.open()
        self.assertEqual(self.text("h1"), "Fail: do not serve")
        self.assertIn("old.copy_(new)", self.text(".next"))
        self.assertEqual(self.browser.run("[...document.querySelectorAll('main > section')].map((s) => s.id)"),
                         ["verdict", "timeline", "findings", "map", "refs", "coverage", "environment"])
        self.assertEqual(self.browser.run("document.querySelectorAll('#timeline tbody tr').length"), 4)
        self.assertIn("8 refused", self.text("#timeline"))
        self.assertGreaterEqual(self.browser.run("document.querySelectorAll('#map path.arc').length"), 8)
        self.assertIn("raw-buffer", self.text("#coverage"))
        self.assertIn("ARENA_GATE", self.text("#environment"))
        self.assertEqual([u for u in self.browser.requests if not u.startswith("file:///")], [])
        self.assertEqual(len(self.browser.requests), 1)

    def test_a_finding_says_who_and_what_next(self):
        self.open()
        first = self.text(".finding[open]")
        for words in ("model.layers.0/", "0x7f2a01800000 → 0x7f3c40000000", "load_weights", "loader.py:88",
                      "process_weights_after_loading", "Next:", "reload 3"):
            self.assertIn(words, first)
        self.browser.run("document.querySelector('#finding-8 summary').click()")
        self.browser.wait("document.querySelector('#finding-8 .body') !== null")
        self.assertIn("vllm", self.text("#finding-8"))
        self.browser.run("[...document.querySelectorAll('#finding-8 button')].find((b) => b.textContent.startsWith('Show')).click()")
        self.assertEqual(self.browser.run(STATE), "125 of 1,000 listed")

    def test_old_and_new_are_linked(self):
        self.open()
        self.browser.run("document.querySelector('#map details').open = true")
        links = self.browser.run("[...document.querySelectorAll('#map td a')].map((a) => "
                                 "[a.textContent, document.querySelector(a.getAttribute('href')).cells[0].textContent])")
        self.assertTrue(any(t.startswith("moved to") for t, _ in links))
        for text, there in links:
            self.assertEqual(text.split()[-1], there)

    def test_search_finds(self):
        self.open()
        self.assertEqual(self.browser.run(STATE), "1,000 listed")
        self.assertEqual(self.search("workspace"), "125 of 1,000 listed")
        self.assertEqual(self.search("exec:3 paged"), "32 of 1,000 listed")
        rows = self.browser.run(ROWS + ".map((r) => r.innerText)")
        self.assertTrue(all(r.startswith("3") and "paged" in r for r in rows), rows)
        self.assertEqual(self.search("0x7f2a01800200"), "2 of 1,000 listed")
        self.assertEqual(self.search("__proto__:1"), "0 of 1,000 listed")
        self.assertIn("No captured address matches", self.text("#ref-view"))
        self.assertEqual(self.search(""), "1,000 listed")
        self.assertEqual(self.browser.complaints, [])

    def test_sorts(self):
        self.open()
        head = "document.querySelector('[data-column=value]')"
        self.browser.run(head + ".querySelector('button').click()")
        values = self.browser.run(ROWS + ".map((r) => r.children[4].textContent)")
        self.assertEqual(self.browser.run(head + ".getAttribute('aria-sort')"), "ascending")
        self.assertEqual(values, sorted(values))
        self.browser.run(head + ".querySelector('button').click()")
        self.assertEqual(self.browser.run(head + ".getAttribute('aria-sort')"), "descending")
        self.assertGreater(self.browser.run(ROWS + "[0].children[4].textContent"), values[-1])

    def test_keyboard(self):
        self.open()
        self.browser.press("Tab")
        self.assertEqual(self.focus(), "skip")
        self.browser.press("Enter")
        self.browser.wait("location.hash === '#verdict'")
        order = []
        for _ in range(400):
            self.browser.press("Tab")
            where = self.focus()
            order.append(where)
            if where == "ref-view":
                break
        self.assertEqual(order[-1], "ref-view")
        self.assertLess(order.index("kinds"), order.index("search"))
        self.browser.press("End")
        self.assertEqual(self.browser.run("document.querySelector('.row.on').dataset.row"), "999")
        self.browser.press("ArrowUp")
        self.assertEqual(self.browser.run("document.getElementById('ref-view').getAttribute('aria-activedescendant')"),
                         "ref-998")
        self.assertIn("graph exec", self.text("#ref-detail"))
        self.browser.press("Enter")
        self.assertEqual(self.browser.run("document.activeElement.parentElement.id + document.activeElement.parentElement.open"),
                         "finding-15true")
        self.browser.press("/")
        self.assertEqual(self.focus(), "search")

    def test_hostile_names_stay_names(self):
        path = page(self.dir, "hostile", report(self.dir, "hostile", "--refs", "64", "--hostile", "--killed"))
        self.open(path)
        self.browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
        self.browser.wait("document.querySelectorAll('.finding .body').length >= 16")
        self.assertEqual(self.browser.run("[document.images.length, document.scripts.length]"), [0, 2])
        self.assertNotIn("owned", self.browser.run("document.title"))
        body = self.text("main")
        self.assertIn("<img src=x onerror=", body)
        self.assertIn("\\u{202e}", body)
        self.assertNotRegex(body, "[\u202e\x1b]")
        self.assertEqual(self.browser.complaints, [])

    def test_nothing_looks_complete_that_is_not(self):
        whole = report(self.dir, "whole", "--refs", "50", "--killed").read_bytes()
        cut = self.dir / "cut.jsonl"
        cut.write_bytes(whole[:-40] + b"")
        self.open(page(self.dir, "cut", cut, status=3))
        alert = self.text(".alert")
        self.assertIn("not complete", alert)
        self.assertIn("no exit line", alert)
        self.assertIn("ends in the middle of a line", alert)
        self.assertIn("no exit line", self.text("#coverage"))
        self.open()
        self.assertFalse(self.browser.run("!!document.querySelector('.alert')"))

    def test_a_pass_that_was_not_read_whole_is_no_pass(self):
        lines = self.report.read_bytes().splitlines(True)
        end = json.loads(lines[-1])
        end.update(verdict="pass", counts_as="pass", unproven=[], coverage={}, findings={"info": 0, "warn": 0, "error": 0})
        damaged = self.dir / "damaged.jsonl"
        for middle, word, status in (b"", "Pass", 0), (b'{"schema":1,"type":"finding","ti\n', "Unproven", 3):
            damaged.write_bytes(lines[0] + middle + json.dumps(end).encode() + b"\n")
            self.open(page(self.dir, "damaged", damaged, status=status))
            self.assertTrue(self.text("h1").startswith(word), self.text("h1"))

    def test_several_processes(self):
        other = report(self.dir, "other", "--refs", "7", "--layers", "1")
        self.open(page(self.dir, "two", self.report, other))
        self.assertIn("2 processes", self.text("#verdict"))
        self.browser.run("document.querySelectorAll('#verdict tbody button')[1].click()")
        self.assertEqual(self.browser.run(STATE), "7 listed")
        self.assertEqual(self.browser.complaints, [])

    def test_narrow_and_schemes(self):
        for scheme in ("light", "dark"):
            self.open(width=360, height=740)
            self.browser.media(scheme=scheme)
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 360)
            for ground, name, ratio in self.browser.run(CONTRAST):
                self.assertGreaterEqual(ratio, 4.5, f"{scheme}: {name} on {ground}")
        # A list that is as wide as its longest word.
        self.browser.run("document.querySelector('#kinds').add(new Option('a-kind-of-finding-'.repeat(5)))")
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 360)

    def test_print(self):
        self.open()
        self.browser.run("dispatchEvent(new Event('beforeprint'))")
        self.browser.media("print")
        self.assertEqual(self.browser.run("getComputedStyle(document.querySelector('.top')).display"), "none")
        self.assertEqual(self.browser.run(ROWS + ".length"), 100)
        self.assertIn("first 100 of 1,000", self.text("#refs"))
        self.assertEqual(self.browser.run("[...document.querySelectorAll('.finding')].filter((d) => !d.open).length"), 0)
        self.assertTrue(self.browser.call("Page.printToPDF")["data"])
        self.browser.media()
        self.browser.run("dispatchEvent(new Event('afterprint'))")
        self.assertLess(self.browser.run(ROWS + ".length"), 60)

    def test_the_browser_enforces_the_policy(self):
        self.open()
        self.browser.run("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
        self.assertIsNone(self.browser.run("window.ran"))
        self.browser.run("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)")
        refused = self.browser.run("fetch('http://127.0.0.1:9/').then(() => false, () => true)")
        self.assertTrue(refused)
        self.assertTrue(any("Content Security Policy" in c for c in self.browser.complaints), self.browser.complaints)

    def test_many(self):
        path = page(self.dir, "many", report(self.dir, "many", "--refs", "100000"))
        self.browser.size(1280, 900)
        load = self.browser.open(path)
        self.assertEqual(self.browser.complaints, [])
        self.assertEqual(self.browser.run(STATE), "100,000 listed")
        nodes = self.browser.run("document.querySelectorAll('*').length")
        self.assertLess(nodes, 4000)
        longest = ("(() => { window.longest = 0; let last = performance.now(); const tick = () => { const now = performance.now(); "
                   "longest = Math.max(longest, now - last); last = now; if (!window.over) setTimeout(tick); }; tick(); })()")
        self.browser.run(longest)
        self.browser.run("document.getElementById('search').focus()")
        self.browser.call("Input.insertText", text="workspace reason:slot-moved")
        search = self.browser.wait(STATE + " === '12,500 of 100,000 listed'")
        sort = self.browser.run("(() => { const t = performance.now(); document.querySelector('[data-column=kernel] button')"
                                ".click(); return performance.now() - t; })()")
        blocked = self.browser.run("window.over = 1, longest")
        self.browser.run("document.getElementById('ref-view').focus()")
        self.browser.press("End")
        self.assertEqual(self.browser.run("document.querySelector('.row.on').dataset.row"), "12499")
        print(f"100,000 captured addresses: page of {path.stat().st_size / 2**20:.1f} MiB, drawn in {load:.0f} ms, "
              f"searched in {search:.0f} ms, sorted in {sort:.0f} ms, longest stop {blocked:.0f} ms, {nodes} elements")


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(0 if result.wasSuccessful() and CHROMIUM else 77 if result.wasSuccessful() else 1)
