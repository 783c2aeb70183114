<?php

// SPDX-License-Identifier: Apache-2.0

$lang['unbloat_app_name'] = 'Queue Control';
$lang['unbloat_app_description'] = 'Calls break up when somebody uploads, because packets wait in a long queue in the modem. Queue Control keeps that queue short. Give the speeds of your line, and turn it on.';
$lang['unbloat_lines'] = 'Lines';
$lang['unbloat_line'] = 'Line';
$lang['unbloat_interface'] = 'Interface';
$lang['unbloat_down'] = 'Download (Mbit/s)';
$lang['unbloat_up'] = 'Upload (Mbit/s)';
$lang['unbloat_state'] = 'State';
$lang['unbloat_enable'] = 'Turn on';
$lang['unbloat_disable'] = 'Turn off';
$lang['unbloat_not_running'] = 'off';
$lang['unbloat_in_place'] = 'in place';
$lang['unbloat_put_back'] = 'put back';
$lang['unbloat_speed_invalid'] = 'Give the speed in Mbit/s, as a speed test measures it: a number above 0.';
$lang['unbloat_interface_invalid'] = 'There is no such interface.';
$lang['unbloat_no_line'] = 'Give the speeds of a line first.';
