<?php
// Stands in for what pfSense's package uses of pfSense: its configuration, interfaces
// and service commands. Interfaces are wan=igb0, lan=igb1.
//
//   pfsense.php PACKAGE CONFIG.JSON toml|resync|end|rules        prints the configuration, or does it
//   pfsense.php PACKAGE CONFIG.JSON line|entry|settings POST.JSON      prints the errors of a form, as JSON
//   pfsense.php PACKAGE CONFIG.JSON page POST.JSON               prints the status page
//
// PACKAGE is the directory of the package's files, CONFIG.JSON what is below
// installedpackages.

[, $package, $file, $does] = $argv;
$installed = json_decode(file_get_contents($file), true);
$given = isset($argv[4]) ? json_decode($argv[4], true) : [];

foreach (['config', 'interfaces', 'util', 'guiconfig', 'head', 'foot'] as $name) {
    $empty = sys_get_temp_dir() . "/$name.inc";
    if (!file_exists($empty)) {
        file_put_contents($empty, '');
    }
}
set_include_path(sys_get_temp_dir());

function config_get_path($path, $default = null)
{
    $at = ['installedpackages' => $GLOBALS['installed']];
    foreach (explode('/', $path) as $part) {
        if (!is_array($at) || !isset($at[$part])) {
            return $default;
        }
        $at = $at[$part];
    }
    return $at;
}
function get_real_interface($name)
{
    return ['wan' => 'igb0', 'lan' => 'igb1', 'opt1' => 'pppoe0'][$name] ?? $name;
}
function mwexec($command, $mute = false)
{
    exec($command, $out, $code);
    return $code;
}
function log_error($says)
{
    fwrite(STDERR, "$says\n");
}
function display_top_tabs($tabs)
{
    echo implode(' ', array_column($tabs, 2)), "\n";
}
function print_info_box($says, $kind)
{
    echo "[$kind] $says\n";
}

if ($does === 'page') {
    $_POST = $given;
    eval('?>' . str_replace("'/usr/local/pkg/unbloat.inc'", var_export("$package/usr/local/pkg/unbloat.inc", true), file_get_contents("$package/usr/local/www/unbloat_status.php")));
    exit;
}
require "$package/usr/local/pkg/unbloat.inc";
$errors = [];
switch ($does) {
    case 'toml':
        echo unbloat_toml(unbloat_settings(), unbloat_lines(), unbloat_entries());
        break;
    case 'resync':
        unbloat_resync();
        break;
    case 'end':
        unbloat_end();
        break;
    case 'rules':
        echo unbloat_generate_rules('filter');
        break;
    case 'line':
        unbloat_validate_line($given, $errors);
        echo json_encode($errors);
        break;
    case 'entry':
        unbloat_validate_entry($given, $errors);
        echo json_encode($errors);
        break;
    case 'settings':
        unbloat_validate_settings($given, $errors);
        echo json_encode($errors);
        break;
}
