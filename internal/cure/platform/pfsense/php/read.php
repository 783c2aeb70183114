<?php
// Reads config.xml anew, past pfSense's cache. pfSense after 2.8 has no
// parse_config(), and before it no config_read_file().
global $config;
require_once("filter.inc");
require_once("shaper.inc");
@unlink("/tmp/config.cache");
if (function_exists("config_read_file")) {
	config_read_file(false, false);
} else {
	parse_config(true);
}
