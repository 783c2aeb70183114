<?php
// What stands around pfSense's own PHP here: `php shell.php CHECKOUT WORK` runs the
// lines on standard input as pfSsh.php does, with shaper.inc, filter.inc, util.inc,
// config.lib.inc and xmlparse.inc of a checkout. WORK holds config.xml; the rules
// that are made come to lie there too, and the commands that pfSense would run are
// written to WORK/runs instead, one a line. What reaches a system, its log, its
// locks and its kernel, is ours below; of a file that has such a function a copy is
// loaded in which that one has another name.
error_reporting(E_ALL & ~E_WARNING & ~E_NOTICE & ~E_DEPRECATED);
[, $checkout, $work] = $argv;
$inc = "$checkout/src/etc/inc";
$shims = "$work/shims";
@mkdir($shims);
@mkdir("$shims/Net");
foreach (['globals', 'functions', 'notices', 'interfaces', 'openvpn', 'captiveportal', 'pfsense-utils', 'config', 'Net/IPv6'] as $empty) {
	file_put_contents("$shims/$empty." . ($empty == 'Net/IPv6' ? 'php' : 'inc'), "");
}
set_include_path("$shims:$inc");

$ours = [
	'util.inc' => ['mwexec', 'logger', 'localize_text', 'get_single_sysctl', 'set_sysctl', 'is_module_loaded', 'lock', 'unlock', 'update_filter_reload_status',
		'mute_kernel_msgs', 'unmute_kernel_msgs', 'alias_expand', 'filter_rule_tracker'],
	'config.lib.inc' => ['write_config'],
	'xmlparse.inc' => [],
	'shaper.inc' => [],
];
foreach ($ours as $file => $names) {
	$text = file_get_contents("$inc/$file");
	foreach ($names as $name) {
		$text = preg_replace('/^(\s*function\s+&?)' . $name . '\s*\(/m', '${1}theirs_' . $name . '(', $text);
	}
	$text = str_replace(["'/etc/inc/pfsense-utils.inc'", "register_shutdown_function('pfSense_clear_globals');"], ["'pfsense-utils.inc'", ''], $text);
	file_put_contents("$shims/$file", $text);
}
// filter.inc wants a later PHP than many have; of it only what writes a user's rule
// and knows schedules.
$text = file_get_contents("$inc/filter.inc");
$functions = "<?php\n";
preg_match_all('/^function &?(filter_generate_user_rule|filter_generate_address|filter_generate_port|filter_get_time_based_rule_status|filter_tdr_\w+)\(.*?^}\n/ms', $text, $found);
file_put_contents("$shims/filter.inc", $functions . implode("\n", $found[0]));

$g = ['tmp_path' => $work, 'cf_conf_path' => $work, 'conf_path' => $work, 'xml_rootobj' => 'pfsense', 'product_label' => 'pfSense'];
function g_get($key, $default = null) { global $g; return $g[$key] ?? $default; }
function is_platform_booting() { return false; }
function get_ipprotocols($type = '') { return ['tcp' => 'TCP', 'udp' => 'UDP', 'tcp/udp' => 'TCP/UDP', 'sctp' => 'SCTP']; }
function logger($priority, $message, ...$more) { global $work; file_put_contents("$work/log", "$message\n", FILE_APPEND); }
function localize_text($text, ...$values) { return sprintf($text, ...$values); }
function file_notice($id, $notice, ...$more) { logger(0, "$id: $notice"); }
function mwexec($command, ...$more) { global $work; file_put_contents("$work/runs", "$command\n", FILE_APPEND); return 0; }
function set_sysctl($values) { foreach ($values as $name => $value) { mwexec("sysctl $name=$value"); } }
function is_module_loaded($name) { return true; }
function lock(...$x) { return 1; }
function unlock(...$x) {}
function mute_kernel_msgs() {}
function unmute_kernel_msgs() {}
function update_filter_reload_status(...$x) {}
function alias_expand($name) { return is_numeric(str_replace(['.', ':', '/', '-'], '', $name)) || filter_var(explode('/', $name)[0], FILTER_VALIDATE_IP) ? $name : null; }
function filter_rule_tracker() { return 1; }
if (!function_exists('mb_strlen')) { // an extension that pfSense has
	function mb_strlen($s) { return strlen(mb_ascii($s)); }
	function mb_strtolower($s) { return strtolower(mb_ascii($s)); }
	function mb_substr($s, ...$at) { return substr(mb_ascii($s), ...$at); }
	function mb_strpos($s, ...$more) { return strpos(mb_ascii($s), ...$more); }
	function mb_ascii($s) { return preg_match('/[\x80-\xff]/', $s) ? die("mbstring is wanted for $s\n") : $s; }
}
function interface_has_gateway($name) { return false; }
function interface_has_gatewayv6($name) { return false; }
function get_single_sysctl($name) {
	return ['fqcodel.target' => '5000', 'fqcodel.interval' => '100000', 'fqcodel.quantum' => '1514', 'fqcodel.limit' => '10240', 'fqcodel.flows' => '1024',
		'codel.target' => '5000', 'codel.interval' => '100000', 'fqpie.target' => '15000', 'fqpie.tupdate' => '15000', 'fqpie.alpha' => '125', 'fqpie.beta' => '1250',
		'fqpie.max_burst' => '150000', 'fqpie.max_ecnth' => '99', 'fqpie.quantum' => '1514', 'fqpie.limit' => '10240', 'fqpie.flows' => '1024'][substr($name, strlen('net.inet.ip.dummynet.'))] ?? '';
}

// Saving is pfSense's own, without backups and other machines.
function write_config($why = 'Unknown', ...$more) {
	config_set_path('revision', ['time' => '1700000060', 'description' => "(system): $why"]);
	if (config_write_file() !== true) {
		die("config.xml was not written\n");
	}
	config_read_file(false, false);
}

// Of the whole reload only what limiters are part of: rules.limiter, and pf's rules.
function filter_configure_sync() {
	global $work, $dummynet_name_list, $FilterIflist;
	filter_generate_dummynet_rules();
	$dummynet_name_list = get_unique_dnqueue_list();
	$FilterIflist = [];
	foreach (config_get_path('interfaces', []) as $name => $interface) {
		$FilterIflist[$name] = ['if' => $interface['if'], 'descr' => strtoupper($name)];
	}
	$rules = '';
	foreach (config_get_path('filter/rule', []) as $rule) {
		foreach ($rule['ipprotocol'] == 'inet46' ? ['inet', 'inet6'] : [$rule['ipprotocol']] as $rule['ipprotocol']) {
			$rules .= filter_generate_user_rule($rule) . "\n";
		}
	}
	file_put_contents("$work/rules.debug", $rules);
}

require_once('util.inc');
require_once('xmlparse.inc');
require_once('config.lib.inc');

// pfSsh.php runs its buffer in a function, at the word exec, and ends at exit. This
// one then prints a line with a dot and begins anew.
function run_buffer($text) { eval($text); }
$buffer = '';
config_read_file(false, true);
while (($line = fgets(STDIN)) !== false) {
	$word = explode(' ', rtrim($line, "\n"))[0];
	if ($word == 'exec') {
		try {
			run_buffer(str_replace(['/sbin/dnctl', '/tmp/config.cache'], ["$work/dnctl", "$work/config.cache"], $buffer));
		} catch (Throwable $e) {
			echo get_class($e), ': ', $e->getMessage(), "\n";
		}
		$buffer = '';
	} elseif ($word == 'exit') {
		$buffer = '';
		echo "\n.\n";
	} elseif ($word == 'begin') { // a new shell, which reads config.xml
		config_read_file(false, false);
	} else {
		$buffer .= $line;
	}
}
