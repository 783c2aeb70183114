// Runs the dashboard's widget with stand-ins of what OPNsense gives it:
//
//   node widget.mjs WIDGET.mjs ANSWERS.json
//
// Each answer is one of /api/unbloat/status/get. Prints for each what the table has.
import {readFileSync} from 'node:fs';

const escaped = (s) => String(s).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');

globalThis.$ = () => ({
    html: '',
    text(s) { this.html = escaped(s); return this; },
    append() { return this; },
    prop() { return this.html; },
});
globalThis.BaseTableWidget = class {
    constructor() {
        this.translations = {missing: 'not running', inplace: 'in place', off: 'off', down: 'down', up: 'up'};
    }
    createTable() { return {}; }
    dataChanged(id, data) {
        const now = JSON.stringify(data), changed = now !== this.last;
        this.last = now;
        return changed;
    }
    updateTable(id, rows) { this.rows = rows; }
    ajaxCall(url) {
        if (url !== '/api/unbloat/status/get') throw new Error(url);
        return this.answer;
    }
};

const {default: Widget} = await import(process.argv[2]);
const w = new Widget({});
w.getMarkup();
for (w.answer of JSON.parse(readFileSync(process.argv[3], 'utf8'))) {
    w.rows = 'unchanged';
    await w.onWidgetTick();
    console.log(JSON.stringify(w.rows));
}
