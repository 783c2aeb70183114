{# SPDX-License-Identifier: Apache-2.0 #}
<script>
    $(document).ready(function () {
        $("#grid-lines").UIBootgrid({
            search: '/api/unbloat/settings/search_line',
            get: '/api/unbloat/settings/get_line/',
            set: '/api/unbloat/settings/set_line/',
            add: '/api/unbloat/settings/add_line/',
            del: '/api/unbloat/settings/del_line/',
            toggle: '/api/unbloat/settings/toggle_line/'
        });

        $("#grid-entries").UIBootgrid({
            search: '/api/unbloat/settings/search_entry',
            get: '/api/unbloat/settings/get_entry/',
            set: '/api/unbloat/settings/set_entry/',
            add: '/api/unbloat/settings/add_entry/',
            del: '/api/unbloat/settings/del_entry/',
            toggle: '/api/unbloat/settings/toggle_entry/'
        });

        mapDataToFormUI({'frm_settings': '/api/unbloat/settings/get'}).done(function () {
            formatTokenizersUI();
            $('.selectpicker').selectpicker('refresh');
            updateServiceControlUI('unbloat');
        });

        $("#reconfigureAct").SimpleActionButton({
            onPreAction: function () {
                const saved = new $.Deferred();
                saveFormToEndpoint('/api/unbloat/settings/set', 'frm_settings', function () { saved.resolve(); }, true, function () { saved.reject(); });
                return saved;
            },
            onAction: function () {
                updateServiceControlUI('unbloat');
                show();
            }
        });

        // What comes from the router is shown as text, never as markup.
        const cell = (text) => $('<td/>').text(text);

        const rate = (bps) => bps ? (bps / 1e6).toLocaleString(undefined, {maximumFractionDigits: 2}) + ' Mbit/s' : '–';

        const states = {
            'in place': ["{{ lang._('in place') }}", 'text-success'],
            'suspended': ["{{ lang._('off') }}", 'text-muted'],
            'starting': ["{{ lang._('being checked') }}", 'text-muted'],
        };

        function failed(data) {
            const says = data.error && data.error.text || data.error || data.says;
            BootstrapDialog.show({type: BootstrapDialog.TYPE_DANGER, title: "{{ lang._('Queue control') }}", message: $('<span/>').text(says)});
        }

        function turn(which, wan) {
            ajaxCall('/api/unbloat/status/' + which + (wan ? '/' + wan : ''), {}, function (data) {
                if (data.error || data.ok === false) {
                    failed(data);
                }
                show();
            });
        }

        // Into unbloat's own page, with a ticket that is good once.
        function enter() {
            ajaxCall('/api/unbloat/status/enter', {}, function (data) {
                const urls = data.urls || [];
                const here = urls.find((u) => new URL(u).hostname === location.hostname) || urls[0];
                if (!here || !data.ticket) {
                    return failed(data);
                }
                location.assign(here + '#enter=' + encodeURIComponent(data.ticket));
            });
        }

        // How a measurement goes. That somebody asks keeps it going.
        function showRun(data) {
            const run = data && data.run;
            const goes = !!run && run.state === 'running';
            $('#enter').toggle(!!(data && data.page));
            $('.measure').toggle(!!(data && data.can_measure) && !goes);
            $('#endrun').toggle(goes);
            const says = [];
            if (goes) {
                says.push("{{ lang._('The line is being measured.') }} " + Math.round(run.seconds) + ' s');
            } else if (run) {
                says.push(run.grade ? "{{ lang._('Grade:') }} " + run.grade : '', run.text || '');
            }
            $('#run-now').text(says.filter(Boolean).join(' '));
        }

        function showLines(daemon) {
            const rows = (daemon ? daemon.wans : []).flatMap(function (w) {
                const [says, style] = states[w.state] || [w.state, 'text-danger'];
                const off = w.state === 'suspended';
                const why = [w.why];
                if (w.mends) {
                    why.push("{{ lang._('Put back:') }} " + w.mends + (w.mended_by ? ' (' + w.mended_by + ')' : '') + ' ' + (w.mended_what || []).join('; '));
                }
                const button = $('<button type="button" class="btn btn-xs btn-default"/>').text(off ? "{{ lang._('Turn on') }}" : "{{ lang._('Turn off') }}").on('click', () => turn(off ? 'on' : 'off', w.wan));
                const measure = $('<button type="button" class="btn btn-xs btn-default measure" style="display: none"/>').text("{{ lang._('Measure') }}").on('click', () => turn('test', w.wan));
                const row = $('<tr/>').append(cell(w.wan), cell(says).addClass(style), $('<td/>').append(button, ' ', measure), cell(rate(w.down_bps)), cell(rate(w.up_bps)));
                // The reason is long, and has a row of its own, which fits a phone.
                const reason = why.filter(Boolean).join(' ');
                return reason ? [row, $('<tr/>').append(cell(reason).attr('colspan', 5).css('white-space', 'normal'))] : [row];
            });
            $('#lines-now > tbody').empty().append(rows);
            $('#daemon-missing').toggle(!daemon);
            $('#daemon-failure').toggle(!!(daemon && daemon.failure)).text(daemon ? daemon.failure || '' : '');
        }

        function showQueues(shapers) {
            const rows = [];
            (shapers || []).forEach(function (s) {
                rows.push($('<tr/>').append($('<th colspan="6"/>').css('white-space', 'normal').text(s.device + ': ' + s.says)));
                (s.counters || []).forEach((c) => rows.push($('<tr/>').append(cell(c.kind + ' ' + (c.handle || '')),
                    cell((c.bytes || 0).toLocaleString()), cell((c.packets || 0).toLocaleString()), cell((c.drops || 0).toLocaleString()),
                    cell((c.marks || 0).toLocaleString()), cell((c.backlog_packets || 0).toLocaleString()))));
            });
            $('#queues > tbody').empty().append(rows);
        }

        function show() {
            ajaxGet('/api/unbloat/status/run', {}, (data, status) => showRun(status === 'success' ? data : null));
            ajaxGet('/api/unbloat/status/get', {}, function (data, status) {
                const wrong = status !== 'success' || data.error;
                $('#status-error').toggle(!!wrong).text(wrong ? data && data.error || "{{ lang._('The router does not answer.') }}" : '');
                if (!wrong) {
                    showLines(data.daemon);
                    showQueues(data.shapers);
                    $('#drift').toggle(!!(data.drift || []).length).text((data.drift || []).map((d) => d.wan + ': ' + d.differences.join('; ')).join(' '));
                }
            });
        }

        $('#enter').on('click', enter);
        $('#endrun').on('click', () => turn('endrun', ''));

        let timer = null;
        $('#tab-status').on('shown.bs.tab', function () {
            show();
            timer = timer || setInterval(show, 3000);
        }).on('hidden.bs.tab', function () {
            clearInterval(timer);
            timer = null;
        });

        if (window.location.hash !== '') {
            $('a[href="' + CSS.escape(window.location.hash).replace('\\#', '#') + '"]').click();
        }
        $('.nav-tabs a').on('shown.bs.tab', function (e) {
            history.pushState(null, null, e.target.hash);
        });
    });
</script>

<ul class="nav nav-tabs" data-tabs="tabs" id="maintabs">
    <li class="active"><a data-toggle="tab" href="#lines">{{ lang._('Lines') }}</a></li>
    <li><a data-toggle="tab" href="#schedule">{{ lang._('Schedule') }}</a></li>
    <li><a data-toggle="tab" href="#settings">{{ lang._('Settings') }}</a></li>
    <li><a data-toggle="tab" href="#status" id="tab-status">{{ lang._('Status') }}</a></li>
</ul>
<div class="tab-content content-box">
    <div id="lines" class="tab-pane fade in active">
        <table id="grid-lines" class="table table-condensed table-hover table-striped table-responsive" data-editDialog="DialogLine" data-editAlert="unbloatChangeMessage">
            <thead>
                <tr>
                    <th data-column-id="uuid" data-type="string" data-identifier="true" data-visible="false">{{ lang._('ID') }}</th>
                    <th data-column-id="enabled" data-width="6em" data-type="string" data-formatter="rowtoggle">{{ lang._('Enabled') }}</th>
                    <th data-column-id="interface" data-type="string">{{ lang._('Interface') }}</th>
                    <th data-column-id="down" data-type="string">{{ lang._('Download, Mbit/s') }}</th>
                    <th data-column-id="up" data-type="string">{{ lang._('Upload, Mbit/s') }}</th>
                    <th data-column-id="follow" data-type="string" data-formatter="boolean">{{ lang._('Follow') }}</th>
                    <th data-column-id="description" data-type="string">{{ lang._('Description') }}</th>
                    <th data-column-id="commands" data-width="7em" data-formatter="commands" data-sortable="false">{{ lang._('Commands') }}</th>
                </tr>
            </thead>
            <tbody></tbody>
            <tfoot>
                <tr>
                    <td></td>
                    <td>
                        <button data-action="add" type="button" class="btn btn-xs btn-primary" title="{{ lang._('Add a line') }}" aria-label="{{ lang._('Add a line') }}"><span class="fa fa-fw fa-plus"></span></button>
                        <button data-action="deleteSelected" type="button" class="btn btn-xs btn-default" title="{{ lang._('Delete') }}" aria-label="{{ lang._('Delete') }}"><span class="fa fa-fw fa-trash-o"></span></button>
                    </td>
                </tr>
            </tfoot>
        </table>
    </div>
    <div id="schedule" class="tab-pane fade in">
        <table id="grid-entries" class="table table-condensed table-hover table-striped table-responsive" data-editDialog="DialogEntry" data-editAlert="unbloatChangeMessage">
            <thead>
                <tr>
                    <th data-column-id="uuid" data-type="string" data-identifier="true" data-visible="false">{{ lang._('ID') }}</th>
                    <th data-column-id="enabled" data-width="6em" data-type="string" data-formatter="rowtoggle">{{ lang._('Enabled') }}</th>
                    <th data-column-id="do" data-type="string">{{ lang._('What') }}</th>
                    <th data-column-id="wan" data-type="string">{{ lang._('Line') }}</th>
                    <th data-column-id="at" data-type="string">{{ lang._('At') }}</th>
                    <th data-column-id="from" data-type="string">{{ lang._('From') }}</th>
                    <th data-column-id="to" data-type="string">{{ lang._('To') }}</th>
                    <th data-column-id="days" data-type="string">{{ lang._('Days') }}</th>
                    <th data-column-id="description" data-type="string">{{ lang._('Description') }}</th>
                    <th data-column-id="commands" data-width="7em" data-formatter="commands" data-sortable="false">{{ lang._('Commands') }}</th>
                </tr>
            </thead>
            <tbody></tbody>
            <tfoot>
                <tr>
                    <td></td>
                    <td>
                        <button data-action="add" type="button" class="btn btn-xs btn-primary" title="{{ lang._('Add an entry') }}" aria-label="{{ lang._('Add an entry') }}"><span class="fa fa-fw fa-plus"></span></button>
                        <button data-action="deleteSelected" type="button" class="btn btn-xs btn-default" title="{{ lang._('Delete') }}" aria-label="{{ lang._('Delete') }}"><span class="fa fa-fw fa-trash-o"></span></button>
                    </td>
                </tr>
            </tfoot>
        </table>
    </div>
    <div id="settings" class="tab-pane fade in">
        {{ partial("layout_partials/base_form", ['fields': formSettings, 'id': 'frm_settings']) }}
    </div>
    <div id="status" class="tab-pane fade in">
        <div id="status-error" class="alert alert-warning" role="alert" style="display: none"></div>
        <div id="daemon-missing" class="alert alert-info" role="alert" style="display: none">{{ lang._('The service does not run: nothing keeps the lines shaped.') }}</div>
        <div id="daemon-failure" class="alert alert-danger" role="alert" style="display: none"></div>
        <div id="drift" class="alert alert-warning" role="alert" style="display: none"></div>
        <div class="table-responsive">
            <table id="lines-now" class="table table-condensed table-striped">
                <thead>
                    <tr>
                        <th>{{ lang._('Line') }}</th>
                        <th>{{ lang._('State') }}</th>
                        <th></th>
                        <th>{{ lang._('Download') }}</th>
                        <th>{{ lang._('Upload') }}</th>
                    </tr>
                </thead>
                <tbody></tbody>
            </table>
        </div>
        <p>
            <span id="run-now" role="status"></span>
            <button id="endrun" type="button" class="btn btn-xs btn-default" style="display: none">{{ lang._('Stop measuring') }}</button>
            <button id="enter" type="button" class="btn btn-default" style="display: none">{{ lang._('Open the page of unbloat') }}</button>
        </p>
        <div class="table-responsive">
            <table id="queues" class="table table-condensed table-striped">
                <thead>
                    <tr>
                        <th>{{ lang._('Queue') }}</th>
                        <th>{{ lang._('Bytes') }}</th>
                        <th>{{ lang._('Packets') }}</th>
                        <th>{{ lang._('Dropped') }}</th>
                        <th>{{ lang._('Marked') }}</th>
                        <th>{{ lang._('Waiting') }}</th>
                    </tr>
                </thead>
                <tbody></tbody>
            </table>
        </div>
    </div>
</div>

<section class="page-content-main">
    <div class="content-box">
        <div class="col-md-12">
            <br/>
            <div id="unbloatChangeMessage" class="alert alert-info" style="display: none" role="alert">
                {{ lang._('Apply, so that the changes take effect.') }}
            </div>
            <button class="btn btn-primary" id="reconfigureAct" type="button"
                    data-endpoint="/api/unbloat/service/reconfigure"
                    data-label="{{ lang._('Apply') }}"
                    data-service-widget="unbloat"
                    data-error-title="{{ lang._('The settings were not applied') }}"></button>
            <br/><br/>
        </div>
    </div>
</section>

{{ partial("layout_partials/base_dialog", ['fields': formLine, 'id': 'DialogLine', 'label': lang._('Line')]) }}
{{ partial("layout_partials/base_dialog", ['fields': formEntry, 'id': 'DialogEntry', 'label': lang._('Schedule')]) }}
