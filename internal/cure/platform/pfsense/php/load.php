<?php
// Makes pfSense's rules of config.xml and loads them. Queues of our pipes that
// pfSense no longer has stay in the kernel; their numbers are known only once it
// has made its rules.
filter_configure_sync();
$given = array();
foreach (get_unique_dnqueue_list() as $number) {
	$given[] = ltrim($number, "?");
}
foreach (explode("\n", strval(shell_exec("/sbin/dnctl queue show 2>/dev/null"))) as $l) {
	if (preg_match('/^q0*(\d+) .* sched (\d+) /', $l, $m) && in_array($m[2], $unbloat["pipes"]) && !in_array($m[1], $given)) {
		mwexec("/sbin/dnctl queue delete " . $m[1]);
	}
}
