'use strict';
'require view';
'require rpc';
'require poll';
'require ui';
'require form';
'require uci';
'require tools.widgets as widgets';

/* What the daemon answers; an error of the daemon is part of the answer. */
const method = (name, params) => rpc.declare({ object: 'luci.unbloat', method: name, params: params, expect: { '': {} }, reject: true });
const callStatus = method('status', [ 'lang' ]);
const callRates = method('rates', [ 'wan', 'router', 'down', 'up', 'seconds' ]);
const callConfirm = method('confirm', [ 'wan', 'router' ]);
const callRevert = method('revert', [ 'wan', 'router' ]);
const callOn = method('on', [ 'wan', 'router' ]);
const callTest = method('test', [ 'wan', 'router' ]);
const callTune = method('tune', [ 'wan', 'router' ]);
const callStop = method('stop', []);
const callEnter = method('enter', []);
const callLook = method('look', []);
const callWhile = method('while', [ 'wan', 'router', 'do', 'machine', 'seconds' ]);
const callIncidents = method('incidents', [ 'lang' ]);

/* How long "for an hour" is. */
const hour = 3600;

/* Seconds until a change is undone that nobody keeps. */
const trialSeconds = 60;

const states = {
	'starting': _('It is being checked.'),
	'in place': _('The line is shaped.'),
	'suspended': _('It is off: the line is not shaped.'),
	'busy': _('It is being changed now.'),
	'held': _('Another program works on it now.'),
	'contested': _('Another program keeps replacing the shaper, so unbloat has stopped.'),
	'foreign': _('Another program shapes this line. It is left alone.'),
	'waiting': _('It waits.'),
	'failing': _('It does not work now; it is tried again.')
};

function rate(bps) {
	if (!bps)
		return _('not shaped');
	return _('%s Mbit/s').format((bps / 1e6).toLocaleString(document.documentElement.lang || undefined, { maximumSignificantDigits: 3 }));
}

function failed(error) {
	ui.addNotification(null, E('p', {}, [ error.text || error.message || String(error) ]), 'error');
}

/* Does something and shows the outcome. */
function act(view, promise) {
	return promise.then(answer => {
		if (answer && answer.error)
			failed(answer.error);
		return view.refresh();
	}).catch(failed);
}

/* Goes to the router's own page of unbloat. LuCI's session has said who asks: a ticket
   that is good once logs them in there. */
function openPage() {
	return callEnter().catch(() => callLook()).then(at => {
		if (at.error)
			return failed(at.error);
		const here = (at.urls || []).find(u => new URL(u).hostname == location.hostname) || (at.urls || [])[0];
		if (here)
			location.assign(here + '#enter=' + at.ticket);
	}).catch(failed);
}

return view.extend({
	load() {
		return Promise.all([ this.ask(), uci.load('unbloat') ]);
	},

	ask() {
		return callStatus(document.documentElement.lang || 'en');
	},

	refresh() {
		return this.ask().then(status => this.show(status)).catch(() => this.show(null));
	},

	/* Changes only what is different, so that buttons keep the focus and inputs their text. */
	show(status) {
		if (!status || status.error) {
			this.set(this.problem, (status && status.error) ? status.error.text : _('The router does not answer. A change that nobody has kept is undone by itself.'));
			return;
		}
		let problem = '';
		if (!status.running)
			problem = _('The service is not running.') + ' ' + (status.problem || _('Start it under System, Startup: unbloatd.'));
		else if (status.problem)
			problem = _('The configuration has a mistake, so the old one stays in force:') + ' ' + status.problem;
		this.set(this.problem, problem);
		this.page.style.display = status.running && status.page ? '' : 'none';
		const wans = status.running ? status.wans : [];
		for (const name in this.cards)
			if (!wans.some(w => this.key(w) == name)) {
				this.cards[name].node.remove();
				delete this.cards[name];
			}
		for (const w of wans) {
			let card = this.cards[this.key(w)];
			if (!card) {
				card = this.cards[this.key(w)] = this.card(w);
				this.lines.appendChild(card.node);
			}
			this.update(card, w);
			this.updateRun(card, w, status);
		}
	},

	key(w) {
		return w.wan + ' ' + (w.router || '');
	},

	set(node, text) {
		if (node.textContent != text)
			node.textContent = text;
		node.style.display = text ? '' : 'none';
	},

	card(w) {
		const card = { status: w };
		const button = (cls, text, f) => E('button', { 'class': 'btn cbi-button ' + cls, 'click': ui.createHandlerFn(this, f) }, [ text ]);
		const id = 'unbloat-' + this.key(w).replace(/[^a-zA-Z0-9]+/g, '-');
		const speed = (way, label) => {
			card[way] = E('input', { 'type': 'number', 'min': '0.1', 'step': 'any', 'inputmode': 'decimal', 'id': id + way, 'class': 'cbi-input-text', 'style': 'width:8em' });
			return E('div', { 'class': 'cbi-value' }, [
				E('label', { 'class': 'cbi-value-title', 'for': id + way }, [ label ]),
				E('div', { 'class': 'cbi-value-field' }, [ card[way] ])
			]);
		};
		const ways = {};
		for (const way of [ 'down', 'up' ])
			ways[way] = {
				limit: E('td', { 'class': 'td', 'data-title': _('Limit now') }),
				line: E('td', { 'class': 'td', 'data-title': _('The line') }),
				why: E('td', { 'class': 'td', 'data-title': _('Why') })
			};
		card.ways = ways;
		card.state = E('p', { 'role': 'status' });
		card.why = E('p', { 'style': 'overflow-wrap:anywhere' });
		card.off = button('cbi-button-negative', _('Turn off'), () => act(this, callRevert(w.wan, w.router || '')));
		card.offHour = button('cbi-button-neutral', _('Off for an hour'), () => act(this, callWhile(w.wan, w.router || '', 'off', '', hour)));
		card.machine = E('input', { 'type': 'text', 'id': id + 'machine', 'class': 'cbi-input-text', 'placeholder': '192.168.1.20' });
		card.boost = E('div', { 'class': 'cbi-value' }, [
			E('label', { 'class': 'cbi-value-title', 'for': id + 'machine' }, [ _('This machine first, for an hour') ]),
			E('div', { 'class': 'cbi-value-field' }, [ card.machine, ' ', button('cbi-button-action', _('First for an hour'), () => act(this, callWhile(w.wan, w.router || '', 'first', card.machine.value.trim(), hour))) ])
		]);
		card.on = button('cbi-button-positive', _('Turn on'), () => act(this, callOn(w.wan, w.router || '')));
		card.left = E('strong', { 'role': 'timer' });
		card.pending = E('div', { 'class': 'alert-message warning', 'role': 'alert' }, [
			E('p', {}, [ _('This is a trial.'), ' ', card.left ]),
			button('cbi-button-positive', _('Keep it'), () => act(this, callConfirm(w.wan, w.router || ''))), ' ',
			button('cbi-button-neutral', _('Undo it now'), () => act(this, callRevert(w.wan, w.router || '')))
		]);
		card.form = E('div', {}, [
			E('h4', {}, [ _('What the line carries') ]),
			speed('down', _('Download (Mbit/s)')), speed('up', _('Upload (Mbit/s)')),
			button('cbi-button-apply', _('Try these speeds'), () => this.tryRates(card))
		]);
		card.run = E('p', { 'role': 'status', 'style': 'overflow-wrap:anywhere' });
		card.stop = button('cbi-button-neutral', _('Stop'), () => act(this, callStop()));
		card.start = E('div', {}, [
			button('cbi-button-action', _('Measure the line'), () => act(this, callTest(w.wan, w.router || ''))), ' ',
			button('cbi-button-action', _('Find the best speeds'), () => act(this, callTune(w.wan, w.router || '')))
		]);
		card.measure = E('div', {}, [ E('h4', {}, [ _('Measure') ]), card.run, card.start, card.stop ]);
		card.node = E('div', { 'class': 'cbi-section' }, [
			E('h3', {}, [ w.router ? _('Line %s of %s').format(w.wan, w.router) : _('Line %s').format(w.wan) ]),
			card.state, card.why, card.pending,
			E('table', { 'class': 'table' }, [
				E('tr', { 'class': 'tr table-titles' }, [ '', _('Limit now'), _('The line'), _('Why') ].map(t => E('th', { 'class': 'th' }, [ t ]))),
				E('tr', { 'class': 'tr' }, [ E('th', { 'class': 'th', 'scope': 'row' }, [ _('Download') ]), ways.down.limit, ways.down.line, ways.down.why ]),
				E('tr', { 'class': 'tr' }, [ E('th', { 'class': 'th', 'scope': 'row' }, [ _('Upload') ]), ways.up.limit, ways.up.line, ways.up.why ])
			]),
			E('div', {}, [ card.on, card.off, ' ', card.offHour ]), card.boost, card.form, card.measure
		]);
		for (const way of [ 'down', 'up' ])
			if (w['line_' + way + '_bps'])
				card[way].value = String(w['line_' + way + '_bps'] / 1e6);
		return card;
	},

	update(card, w) {
		card.status = w;
		const off = w.state == 'suspended';
		const back = off && w.off_until ? ' ' + _('It is on again by itself at %s.').format(new Date(w.off_until).toLocaleTimeString()) : '';
		this.set(card.state, w.undone_in_seconds ? _('Other speeds are tried.') : (states[w.state] || w.state) + back);
		this.set(card.why, w.state == 'in place' || off || w.undone_in_seconds ? '' : (w.why || ''));
		for (const way of [ 'down', 'up' ]) {
			const line = w.line && w.line[way];
			card.ways[way].limit.textContent = off ? _('not shaped') : rate(w[way + '_bps']);
			card.ways[way].line.textContent = line && line.capacity_bps ? _('about %s').format(rate(line.capacity_bps)) :
				w['line_' + way + '_bps'] ? rate(w['line_' + way + '_bps']) : _('not known');
			card.ways[way].why.textContent = w['why_' + way] || (off ? '' : w.follow ? _('The line is not followed now.') : _('It is held: the line is not followed.'));
		}
		card.pending.style.display = w.undone_in_seconds ? '' : 'none';
		card.deadline = w.undone_in_seconds ? Date.now() + w.undone_in_seconds * 1000 : 0;
		this.count(card);
		card.on.style.display = off ? '' : 'none';
		for (const node of [ card.off, card.offHour, card.boost ])
			node.style.display = off || w.undone_in_seconds ? 'none' : '';
		card.form.style.display = off || w.undone_in_seconds ? 'none' : '';
	},

	updateRun(card, w, status) {
		const run = status.run && status.run.wan == w.wan && (status.run.router || '') == (w.router || '') ? status.run : null;
		const goes = status.run && status.run.state == 'running';
		card.measure.style.display = status.can_measure ? '' : 'none';
		card.start.style.display = goes ? 'none' : '';
		card.stop.style.display = run && goes ? '' : 'none';
		let text = '';
		if (run && goes)
			text = (run.method == 'tune' ? _('The best speeds are being found: %d s. It takes some minutes.') : _('The line is being measured: %d s. It takes a minute.')).format(Math.round(run.seconds));
		else if (run)
			text = [ run.grade ? _('Grade %s.').format(run.grade) : '', run.state == 'stopped' ? _('It was stopped.') : run.text || '' ].filter(t => t).join(' ');
		this.set(card.run, text);
	},

	/* What went wrong within a week, and whose fault it was. */
	showWrong() {
		return callIncidents(document.documentElement.lang || 'en').then(got => {
			const all = got.incidents || [];
			this.wrong.style.display = got.watched || all.length ? '' : 'none';
			const rows = all.map(x => E('tr', { 'class': 'tr' }, [
				E('td', { 'class': 'td', 'data-title': _('Begin') }, [ new Date(x.begin).toLocaleString(), ', ', x.over ? _('%d s').format(Math.round(x.seconds)) : _('it goes on') ]),
				E('td', { 'class': 'td', 'data-title': _('What') }, [ E('strong', {}, [ x.kind, ', ', x.severity ]), ': ', x.text ]),
				E('td', { 'class': 'td', 'data-title': _('To blame') }, [ x.part ])
			]));
			this.wrong.replaceChildren(E('h3', {}, [ _('What went wrong') ]), all.length ? E('table', { 'class': 'table' }, [
				E('tr', { 'class': 'tr table-titles' }, [ _('Begin'), _('What'), _('To blame') ].map(t => E('th', { 'class': 'th' }, [ t ]))), ...rows
			]) : E('p', {}, [ _('Nothing within a week.') ]));
		}).catch(() => {});
	},

	/* Shows how long a change still waits. */
	count(card) {
		if (card.deadline)
			card.left.textContent = _('It is undone in %d s.').format(Math.max(0, Math.round((card.deadline - Date.now()) / 1000)));
	},

	tryRates(card) {
		const rates = [ 'down', 'up' ].map(way => {
			const text = card[way].value.trim();
			return text == '' || Number(text) > 0 ? (text && text + ' Mbit/s') : null;
		});
		if (rates.includes(null) || !rates.some(r => r))
			return failed({ text: _('Give the speeds in Mbit/s, as numbers above 0.') });
		return act(this, callRates(card.status.wan, card.status.router || '', rates[0], rates[1], trialSeconds));
	},

	render(data) {
		this.cards = {};
		this.problem = E('div', { 'class': 'alert-message warning', 'role': 'alert', 'style': 'display:none;overflow-wrap:anywhere' });
		this.lines = E('div', {});
		this.wrong = E('div', { 'class': 'cbi-section', 'style': 'display:none' });
		this.showWrong();
		poll.add(() => this.showWrong(), 30);
		this.page = E('p', { 'style': 'display:none' }, [ E('button', { 'class': 'btn cbi-button cbi-button-action', 'click': ui.createHandlerFn(this, openPage) }, [ _('Open the page of unbloat') ]) ]);
		this.show(data[0]);
		poll.add(() => this.refresh(), 3);
		window.setInterval(() => Object.values(this.cards).forEach(card => this.count(card)), 1000);

		const m = new form.Map('unbloat', null, null);
		const s = m.section(form.TypedSection, 'wan', _('Settings'), _('LuCI takes changes back if it can no longer reach the router after them.'));
		s.anonymous = true;
		s.addremove = true;
		s.addbtntitle = _('Add a line');

		let o = s.option(widgets.DeviceSelect, 'interface', _('Interface towards the internet'));
		o.rmempty = false;
		o.nobridges = true;
		o.noaliases = true;

		o = s.option(widgets.DeviceSelect, 'lan', _('Interface towards the home'));
		o.noaliases = true;

		for (const [ key, title ] of [ [ 'down', _('Download that the line carries') ], [ 'up', _('Upload that the line carries') ] ]) {
			o = s.option(form.Value, key, title);
			o.placeholder = '50 Mbit/s';
			o.validate = validRate;
		}

		o = s.option(form.Flag, 'follow', _('Follow the line'), _('For lines that carry sometimes more, sometimes less, such as LTE, 5G, satellite and cable: the limit follows what the line carries. It needs both speeds, and CAKE.'));
		o.rmempty = true;

		for (const [ key, title ] of [ [ 'least_down', _('Least download') ], [ 'most_down', _('Most download') ], [ 'least_up', _('Least upload') ], [ 'most_up', _('Most upload') ] ]) {
			o = s.option(form.Value, key, title);
			o.depends('follow', '1');
			o.placeholder = _('learnt');
			o.validate = validRate;
		}

		o = s.option(form.ListValue, 'link_layer', _('Kind of line'));
		o.value('', _('not known'));
		o.value('ethernet', _('Ethernet, fibre'));
		o.value('docsis', _('Cable (DOCSIS)'));
		o.value('ptm', _('VDSL (PTM)'));
		o.value('atm', _('ADSL (ATM)'));

		/* The daemon goes by the last section of this type, whatever it is called. */
		const there = uci.sections('unbloat', 'ui');
		const page = m.section(form.NamedSection, there.length ? there[there.length - 1]['.name'] : 'page', 'ui', _('The page of unbloat'), _('For the browsers of your home: how the line is, who uses it, what to change.'));
		page.addremove = true;

		o = page.option(form.Value, 'listen', _('Address and port'), _('Empty: there is no page.'));
		o.placeholder = '192.168.1.1:7690';
		if (/^[0-9.]+$/.test(location.hostname))
			o.value(location.hostname + ':7690');
		o.validate = (section, value) => value == '' || /^([0-9.]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$/.test(value) || _('An address and a port, as in 192.168.1.1:7690');

		return m.render().then(settings => E('div', {}, [
			E('h2', {}, [ 'unbloat' ]),
			E('p', {}, [ _('Keeps calls and games clear while somebody uploads or downloads: packets wait here for a moment, and no longer in the modem for seconds.') ]),
			this.page, this.problem, this.lines, this.wrong, settings
		]));

		function validRate(section, value) {
			return value == '' || /^[0-9]+(\.[0-9]+)?\s*([kMG]?bit(\/s|ps)?|[kmg]bit|Mbps|kbps|Gbps)$/i.test(value) || _('A rate with its unit, as in 50 Mbit/s');
		}
	}
});
