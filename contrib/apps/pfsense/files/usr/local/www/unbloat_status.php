<?php

// SPDX-License-Identifier: Apache-2.0

##|+PRIV
##|*IDENT=page-services-unbloat
##|*NAME=WebCfg - Services: Queue control
##|*DESCR=Change the lines that unbloat keeps shaped, and see how they are.
##|*MATCH=unbloat_status.php*
##|-PRIV

require_once('guiconfig.inc');
require_once('/usr/local/pkg/unbloat.inc');

$wrong = '';
if ($_POST) {
	$wrong = unbloat_turn(isset($_POST['on']), $_POST['on'] ?? $_POST['off'] ?? '');
}
$status = unbloat_status();

$pgtitle = [gettext('Services'), gettext('Queue control'), gettext('Status')];
include('head.inc');

display_top_tabs([
	[gettext('Settings'), false, '/pkg_edit.php?xml=unbloat_settings.xml'],
	[gettext('Lines'), false, '/pkg.php?xml=unbloat.xml'],
	[gettext('Schedule'), false, '/pkg.php?xml=unbloat_schedule.xml'],
	[gettext('Status'), true, '/unbloat_status.php'],
]);

function unbloat_rate($bps) {
	return $bps ? htmlspecialchars(round($bps / 1e6, 2) . ' Mbit/s') : '–';
}

foreach (array_filter([$wrong, $status['error'] ?? '', $status['daemon']['failure'] ?? '']) as $says) {
	print_info_box(htmlspecialchars($says), 'danger');
}
if (empty($status['error']) && empty($status['daemon'])) {
	print_info_box(gettext('The service does not run: nothing keeps the lines shaped.'), 'info');
}
?>
<div class="panel panel-default">
	<div class="panel-heading"><h2 class="panel-title"><?=gettext('Lines')?></h2></div>
	<div class="panel-body table-responsive">
		<form method="post">
		<table class="table table-striped table-condensed">
			<thead><tr><th><?=gettext('Line')?></th><th><?=gettext('State')?></th><th><?=gettext('Download')?></th><th><?=gettext('Upload')?></th><th><?=gettext('Why')?></th><th></th></tr></thead>
			<tbody>
<?php foreach ($status['daemon']['wans'] ?? [] as $w):
	$off = $w['state'] === 'suspended'; ?>
				<tr>
					<td><?=htmlspecialchars($w['wan'])?></td>
					<td><?=htmlspecialchars($off ? gettext('off') : $w['state'])?></td>
					<td><?=unbloat_rate($w['down_bps'] ?? 0)?></td>
					<td><?=unbloat_rate($w['up_bps'] ?? 0)?></td>
					<td><?=htmlspecialchars(trim(($w['why'] ?? '') . (empty($w['mends']) ? '' : ' ' . sprintf(gettext('Put back: %d'), $w['mends']) . ' ' . ($w['mended_by'] ?? ''))))?></td>
					<td><button class="btn btn-xs btn-default" type="submit" name="<?=$off ? 'on' : 'off'?>" value="<?=htmlspecialchars($w['wan'])?>"><?=$off ? gettext('Turn on') : gettext('Turn off')?></button></td>
				</tr>
<?php endforeach; ?>
			</tbody>
		</table>
		</form>
	</div>
</div>
<div class="panel panel-default">
	<div class="panel-heading"><h2 class="panel-title"><?=gettext('Queues')?></h2></div>
	<div class="panel-body table-responsive">
		<table class="table table-striped table-condensed">
			<thead><tr><th><?=gettext('Queue')?></th><th><?=gettext('Bytes')?></th><th><?=gettext('Packets')?></th><th><?=gettext('Dropped')?></th><th><?=gettext('Marked')?></th><th><?=gettext('Waiting')?></th></tr></thead>
			<tbody>
<?php foreach ($status['shapers'] ?? [] as $s): ?>
				<tr><th colspan="6"><?=htmlspecialchars($s['device'] . ': ' . $s['says'])?></th></tr>
<?php	foreach ($s['counters'] ?? [] as $c): ?>
				<tr>
					<td><?=htmlspecialchars($c['kind'] . ' ' . $c['handle'])?></td>
<?php		foreach (['bytes', 'packets', 'drops', 'marks', 'backlog_packets'] as $key): ?>
					<td><?=number_format($c[$key] ?? 0)?></td>
<?php		endforeach; ?>
				</tr>
<?php	endforeach;
endforeach; ?>
			</tbody>
		</table>
	</div>
</div>
<?php include('foot.inc');
