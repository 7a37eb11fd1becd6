"""The table of libraries in docs/libraries.md, made from the results of the last run of each."""

import json
from pathlib import Path

from .outcomes import Result
from .suites import SUITES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "libraries.md"
HEAD = """# Libraries written for JAX

`import fnx.jax` before anything imports JAX, and these libraries run on fnx.
`python -m tests.libraries NAME...` runs a library's own tests twice, with JAX in 64-bit mode on a CPU and
with fnx, and writes this page. Counted are the tests that pass with JAX, but for those that ask what cannot
be asked of fnx, each with its reason. With `--fnx-first` a test that passes with fnx is not run with JAX,
and counted as if it passed there: the page says of how many that is so. Where not all files of tests were
run, the share is that of the files that were: it says nothing about the others. Of JAX's own tests
(`jax`) those that use what is private to JAX are skipped with fnx; words of errors are not compared.

| library | version | files of tests | pass with JAX | of these with fnx | share |
|---|---|---|---|---|---|
"""
TRIED = """
Of these an example as in their READMEs was run, with the numbers that JAX gives: mctx, jraph, flowjax,
ott-jax, quadax (with gradients), orthax, s2fft, penzai, jax-cosmo, coordax, dinosaur, TensorFlow
Probability's substrate, pytreeclass, sympy2jax, rlax, MuJoCo's mjx, brax, jax-md (but for its networks
in Pallas), netket, jaxley, dynamiqs, PennyLane, jaxoplanet, hamux, dynamax, gpjax, pgx, xminigrid, CoLA,
exponax, jaxns, matfree, traceax, simple-pytree, zodiax, paramax, unxt with quaxed, jaxquantum, fmmax,
bayex, lqrax, kernex,
and with JAX_ENABLE_X64=0, as with JAX, gymnax, jumanji, dm-pix and Keras (training of nine kinds of
networks).
These ask for what is not there: kfac-jax makes new equations of jaxprs (`core.new_jaxpr_eqn`); products
of haliax call a private einsum, which JAX 0.10.2 has not either.
"""
SHOWN = 12  # failures of a library that are shown one by one


def keep(name: str, result: Result) -> None:
    """Note a result, and write the page anew; files of the same version that were not run again stay."""
    known = read()
    known[name] = joined(known.get(name), result._asdict())
    RESULTS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", "utf-8")
    PAGE.write_text(page(known), "utf-8")


def joined(old: dict | None, new: dict) -> dict:
    """The results of two runs of other files; of the second alone where a file was run in both."""
    if old is None or old["version"] != new["version"] or {*old["files"]} & {*new["files"]}:
        return new
    reasons = {*old["uncounted"], *new["uncounted"]}
    count = lambda reason: sum(r["uncounted"].get(reason, 0) for r in (old, new))
    sums = {key: old[key] + new[key] for key in ("counted", "passed", "files", "unasked")}
    left = [path for path in new["left_out"] if path not in old["files"]]
    both = {"failed": old["failed"] | new["failed"], "uncounted": {r: count(r) for r in reasons}}
    return {**new, **sums, **both, "left_out": left}


def read() -> dict[str, dict]:
    """The results by library."""
    return json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}


def page(known: dict[str, dict]) -> str:
    """The page's text."""
    rows, details = [], []
    for name, r in sorted(known.items()):
        share = 100.0 * r["passed"] / max(r["counted"], 1)
        numbers = f"{r['counted']:,} | {r['passed']:,} | {share:.1f} %"
        ran, rest = len(r.get("files", ())), len(r.get("left_out", ()))
        of = f"{ran} of {ran + rest}" if rest else "all"
        rows.append(f"| {name} | {r['version']} | {of} | {numbers} |")
        details += detail(name, r)
    return HEAD + "\n".join(rows) + "\n" + TRIED + "\n".join(details)


def detail(name: str, r: dict) -> list[str]:
    """What of a library fails, and what is not counted."""
    known_parts = SUITES[name].known
    unasked = r.get("unasked", 0)
    if not (unasked or r["failed"] or r["uncounted"] or r.get("left_out") or known_parts):
        return []
    lines = ["", f"## {name}", ""]
    if unasked:
        lines.append(f"- tests that pass with fnx and were not run with JAX: {unasked:,}")
    if r.get("left_out"):
        lines.append(f"- files that were run: {listed(r['files'])}")
        lines.append(f"- files that were not run: {listed(r['left_out'])}")
    lines += [f"- known to fail, `{part}`: {why}" for part, why in known_parts.items()]
    lines += [f"- not counted, {n}: {reason}" for reason, n in sorted(r["uncounted"].items())]
    causes: dict[str, list[str]] = {}
    for test, cause in r["failed"].items():
        causes.setdefault(cause, []).append(test)
    for cause, tests in sorted(causes.items(), key=lambda kv: -len(kv[1]))[:SHOWN]:
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        lines.append(f"- `{tests[0]}`{more}: {plain(cause)}")
    if len(causes) > SHOWN:
        lines.append(
            f"- and {sum(map(len, causes.values()))} failures in all, of {len(causes)} causes"
        )
    return lines


def listed(files: list[str]) -> str:
    """Files by name; with the folder where two have one name."""
    names = [Path(path).stem for path in files]
    return ", ".join(p if names.count(n) > 1 else n for p, n in zip(files, names, strict=True))


def plain(text: str) -> str:
    """An error's line as Markdown shows it as it is."""
    return "`" + text.replace("`", "'") + "`"
