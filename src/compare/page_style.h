// The style sheet of compare.html. Colours of series are told apart with all kinds of colour
// vision (after Okabe and Ito); after as many strategies as there are colours, lines have other
// dashes.
#pragma once

#include <cstddef>

namespace starling {

inline constexpr size_t kSeriesColors = 8;  // s0 … s7
inline constexpr size_t kSeriesDashes = 4;  // d0 … d3; the first has none
inline constexpr const char* kPageStyle = R"(
:root { --ink: #1f2937; --muted: #5b6472; --page: #f5f6f8; --card: #ffffff; --edge: #dde2e9; --grid: #e8ebf0;
  --good: #00785a; --unsure: #a05a00; --good-back: #e7f5f0; --unsure-back: #fdf3e2;
  --c0: #5f6b7a; --c1: #0072b2; --c2: #d55e00; --c3: #009e73; --c4: #b0578d; --c5: #c78a00;
  --c6: #3d9bd6; --c7: #7a5c1e;
  --part0: #c78a00; --part1: #0072b2; --part2: #d55e00; --part3: #b9c0ca; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --muted: #a3acb9; --page: #14171c; --card: #1d2128; --edge: #333a45; --grid: #2c323c;
    --good: #5fd0ae; --unsure: #f0b65c; --good-back: #16302a; --unsure-back: #33281a;
    --c0: #a3acb9; --c1: #4aa8e0; --c2: #f08a4b; --c3: #3cc79c; --c4: #dd8dbd; --c5: #e8b53c;
    --c6: #8accf5; --c7: #c4a565;
    --part0: #e8b53c; --part1: #4aa8e0; --part2: #f08a4b; --part3: #5b6472; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1440px; margin: 0 auto; padding: 20px 16px 48px; }
h1 { font-size: 24px; line-height: 1.25; margin: 8px 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 36px 0 10px; }
h3 { font-size: 15px; margin: 0 0 2px; }
p { margin: 4px 0; overflow-wrap: anywhere; }
.muted { color: var(--muted); font-size: 13.5px; }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: 14px 16px;
  margin: 12px 0; }
.advice { border-left: 5px solid var(--unsure); }
.advice.sure { border-left-color: var(--good); }
.advice strong { font-size: 17px; }
.badge { display: inline-block; border-radius: 99px; padding: 1px 10px; font-size: 13px; font-weight: 600;
  color: var(--unsure); background: var(--unsure-back); }
.sure > p > .badge { color: var(--good); background: var(--good-back); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 10px 0 0; padding: 0; list-style: none;
  font-size: 13.5px; }
.legend li { display: flex; align-items: center; gap: 7px; overflow-wrap: anywhere; }
.legend svg { flex: none; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); gap: 12px;
  align-items: start; }
.charts > .card { margin: 0; min-width: 0; }
.columns { columns: 360px auto; column-gap: 12px; margin-top: 12px; }
.columns > .card { margin: 0 0 12px; break-inside: avoid; }
.chart { display: block; width: 100%; height: auto; margin-top: 8px; overflow: hidden;
  font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.chart text { fill: var(--muted); }
.chart text.x, .chart text.title { text-anchor: middle; }
.chart text.y, .chart text.figure { text-anchor: end; }
.chart text.name, .chart text.figure { fill: var(--ink); }
.chart text.figure { font-weight: 600; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--grid); } .axis { stroke: var(--muted); }
line.goal { stroke: var(--muted); stroke-dasharray: 2 4; stroke-width: 1.5; }
text.goal { font-size: 12px; paint-order: stroke; stroke: var(--card); stroke-width: 3px; stroke-linejoin: round; }
.line { fill: none; stroke: var(--c); stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.band { fill: var(--c); opacity: 0.11; }
circle { fill: var(--c); stroke: var(--card); stroke-width: 1; }
.bar { fill: var(--c); } .track { fill: var(--grid); } .whisker { stroke: var(--ink); stroke-width: 1.6; }
.p0 { fill: var(--part0); } .p1 { fill: var(--part1); } .p2 { fill: var(--part2); } .p3 { fill: var(--part3); }
.hidden { fill: var(--part2); opacity: 0.6; }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); } .s7 { --c: var(--c7); }
.line.s0, .line.d1 { stroke-dasharray: 6 5; } .line.d2 { stroke-dasharray: 1 5; }
.line.d3 { stroke-dasharray: 11 5 1 5; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--edge); }
th { font-weight: 600; color: var(--muted); vertical-align: bottom; white-space: normal; min-width: 84px; }
th:first-child, td:first-child { text-align: left; }
tr.best td { background: var(--good-back); font-weight: 600; }
tr:last-child td { border-bottom: none; }
ul.notes { margin: 6px 0; padding-left: 20px; }
)";

}  // namespace starling
