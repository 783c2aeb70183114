// SPDX-License-Identifier: Apache-2.0

// The lines and their rates, and why one is not as it should be.
export default class Unbloat extends BaseTableWidget {
    constructor(config) {
        super(config);
        this.tickTimeout = 10;
    }

    getMarkup() {
        return $('<div></div>').append(this.createTable('unbloat-table', {headerPosition: 'left'}));
    }

    // text makes markup of a text that comes from the router.
    text(s) {
        return $('<span></span>').text(s).prop('outerHTML');
    }

    says(w) {
        const t = this.translations;
        const rate = (bps) => (bps / 1e6).toFixed(bps < 1e7 ? 2 : 1) + ' Mbit/s';
        const rates = [w.down_bps && rate(w.down_bps) + ' ' + t.down, w.up_bps && rate(w.up_bps) + ' ' + t.up].filter(Boolean).join(', ');
        switch (w.state) {
            case 'in place':
                return [t.inplace, rates];
            case 'suspended':
                return [t.off];
        }
        return [w.state, w.why].filter(Boolean);
    }

    async onWidgetTick() {
        const status = await this.ajaxCall('/api/unbloat/status/get');
        let rows = [[this.text(this.translations.missing), '']];
        if (status && status.error) {
            rows = [[this.text(status.error), '']];
        } else if (status && status.daemon) {
            rows = status.daemon.wans.map((w) => [this.text(w.wan), this.says(w).map((s) => this.text(s))]);
        }
        if (this.dataChanged('unbloat', rows)) {
            this.updateTable('unbloat-table', rows);
        }
    }
}
