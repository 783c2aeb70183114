<?php
// Puts our elements in place of those of ours that are there, and saves
// config.xml. Our limiters come last, so that no other queue gets another number:
// connections keep the number with which they were opened.
$theirs = function ($x) use ($unbloat) {
	return strncmp($x["name"] ?? "", $unbloat["limiter"], strlen($unbloat["limiter"])) != 0
		&& strncmp($x["descr"] ?? "", $unbloat["descr"], strlen($unbloat["descr"])) != 0;
};
foreach (array("dnshaper" => "queue", "filter" => "rule") as $section => $list) {
	if (!is_array($config[$section] ?? "")) {
		$config[$section] = array();
	}
	$old = $config[$section][$list] ?? array();
	$old = array_values(array_filter(is_array($old) ? $old : array(), $theirs));
	$config[$section][$list] = $list == "queue" ? array_merge($old, $unbloat[$list]) : array_merge($unbloat[$list], $old);
}
write_config("unbloat: limiters");
