"""The style of a report's page. Colours have the contrast that WCAG 2.2 AA asks for, in light and dark."""

from __future__ import annotations

STYLE = """
:root { --back: #ffffff; --card: #f6f7f9; --ink: #1a1d21; --quiet: #565d66; --rule: #d9dde2; --link: #0b5cad;
  --s0: #1f6fb4; --s1: #b3500b; --s2: #2a7a3b; --s3: #9a2f6d; --s4: #6250ba; --s5: #0f7b81; --s6: #7d6608;
  --s7: #5f6368; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --card: #1d2125; --ink: #e8eaed;
  --quiet: #a3abb5;
  --rule: #343a41; --link: #7db8f0; --s0: #6cb2f0; --s1: #f0a05e; --s2: #7ccf8b; --s3: #ec8fc2; --s4: #b3a4f5;
  --s5: #5fc9cf; --s6: #d8c052; --s7: #b4bac1; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 64rem; background: var(--back);
  color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.7rem; line-height: 1.25; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.25rem; }
header p, .note { margin: .3rem 0; color: var(--quiet); }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: .75rem 0 0; padding: 0;
  list-style: none; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: .75rem;
  margin: 0 0 1rem; }
dl div { padding: .6rem .85rem; background: var(--card); border-radius: .5rem; min-width: 0; }
dt { color: var(--quiet); font-size: .85rem; }
dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
figure { margin: 1rem 0; padding: .85rem 1rem; background: var(--card); border-radius: .5rem; }
figcaption, caption { font-weight: 600; text-align: left; padding-bottom: .4rem; }
figure { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 32rem; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .axis { fill: var(--quiet); font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round;
  stroke-linecap: round; }
svg .bar, svg .dot { fill: currentColor; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: 0 0 .4rem; padding: 0; list-style: none;
  font-size: .85rem; }
.key { display: inline-block; width: 1rem; height: .25rem; margin-right: .4rem; vertical-align: middle;
  border-radius: .2rem; background: currentColor; }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); } .s3 { color: var(--s3); }
.s4 { color: var(--s4); } .s5 { color: var(--s5); } .s6 { color: var(--s6); } .s7 { color: var(--s7); }
.scroll { overflow-x: auto; margin-top: 1.25rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; }
th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 3rem; }
.text { min-width: 7rem; }
.time { white-space: nowrap; }
th.number, .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
@media print { body { max-width: none; padding: 0; } figure, dl div { break-inside: avoid; } }
"""
