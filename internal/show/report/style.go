package report

import (
	"fmt"
)

// pageCSS returns the styles of the HTML page. Its colours are those of the
// charts' themes.
func pageCSS() string {
	vars := func(t theme) string {
		return fmt.Sprintf("--text:%s;--muted:%s;--line:%s;--band:%s;--paper:%s;--before:%s;--after:%s;--good:%s;--fair:%s;--bad:%s",
			hex(t[inkText]), hex(t[inkMuted]), hex(t[inkGrid]), hex(t[inkBand]), hex(t[inkPaper]),
			hex(t[inkBefore]), hex(t[inkAfter]), hex(t[inkGood]), hex(t[inkFair]), hex(t[inkBad]))
	}
	return ":root{color-scheme:light dark;" + vars(lightTheme()) + "}" +
		"@media(prefers-color-scheme:dark){:root{" + vars(darkTheme()) + "}}" +
		"body{font:16px/1.5 " + fontStack + ";" + bodyCSS + svgCSS() + inkCSS()
}

const bodyCSS = `margin:0;background:var(--paper);color:var(--text);-webkit-text-size-adjust:100%}
main{max-width:872px;margin:0 auto;padding:28px 24px 40px}
h1{font-size:1rem;font-weight:600;color:var(--muted);margin:0 0 6px;overflow-wrap:anywhere}
h2{font-size:1.2rem;line-height:1.3;margin:44px 0 6px}
#list tbody th{min-width:6.5em}
h3{font-size:1rem;line-height:1.35;margin:32px 0 6px;overflow-wrap:anywhere}
p{margin:.4em 0;max-width:70ch;overflow-wrap:anywhere}
.verdict{font-size:1.45rem;line-height:1.35;font-weight:600;margin:0 0 14px;max-width:40em;text-wrap:pretty}
.muted,.notes,figcaption,footer{color:var(--muted);font-size:.9rem}
.notes{margin:10px 0;padding-left:1.2em}
.notes li{margin:.25em 0;overflow-wrap:anywhere}
.alert{border:2px solid var(--bad);border-radius:8px;padding:10px 14px;margin:14px 0}
.alert b{color:var(--bad)}
.alert ul{margin:.3em 0;padding-left:1.2em}
.alert li{overflow-wrap:anywhere}
.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:16px 0;padding:0;list-style:none}
.tiles li{flex:1 1 auto;background:var(--band);border-radius:8px;padding:10px 14px}
.tiles .what{display:block;max-width:17em;font-size:.85rem;color:var(--muted)}
.tiles .num{font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums;white-space:nowrap}
.tiles .from{color:var(--before);font-weight:500}
.tiles .to{color:var(--text)}
.tone-good{color:var(--good)}.tone-fair{color:var(--fair)}.tone-bad{color:var(--bad)}
.wrap{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:10px 0 4px;overflow-wrap:anywhere}
th,td{padding:4px 0 4px 14px;text-align:right;border-top:1px solid var(--line);vertical-align:baseline}
th:first-child,td:first-child{padding-left:0;text-align:left}
th{font-weight:400}
thead th{vertical-align:bottom;color:var(--muted);border-top:0;font-size:.85rem}
tbody th[scope=rowgroup]{font-weight:600;padding-top:14px;border-top:0}
td{white-space:nowrap}
td.outcome{border-top:0;padding-top:0;color:var(--muted)}
th.words{text-align:left}
td.words{white-space:normal;text-align:left;min-width:9em;overflow-wrap:anywhere}
figure{margin:10px 0 0}
figcaption{margin-top:8px;max-width:70ch}
svg{display:block;width:100%;height:auto}
.narrow{display:none}
details{margin:10px 0;border-top:1px solid var(--line);padding-top:8px}
summary{cursor:pointer;font-weight:600;padding:6px 0;overflow-wrap:anywhere}
summary:focus-visible{outline:2px solid var(--after);outline-offset:2px}
footer{margin-top:44px;border-top:1px solid var(--line);padding-top:10px}
@media(max-width:760px){.wide{display:none}.narrow{display:block;max-width:520px}}
@media(max-width:560px){main{padding:18px 16px 32px}.verdict{font-size:1.22rem}h2{margin-top:36px}
.tiles{gap:6px}.tiles li{flex-basis:100%;display:flex;justify-content:space-between;align-items:baseline;gap:12px;padding:8px 12px}.tiles .num{font-size:1.08rem}
table{font-size:.82rem}th,td{padding-left:6px}.change th[scope=row]{white-space:nowrap}.change td:last-child{white-space:normal;min-width:4.6em}}
@media print{.narrow{display:none}.wide{display:block}h2,figure,tr{break-inside:avoid}}
`
