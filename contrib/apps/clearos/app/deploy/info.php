<?php

// SPDX-License-Identifier: Apache-2.0

$app['basename'] = 'unbloat';
$app['version'] = '0.1.0';
$app['release'] = '1';
$app['vendor'] = 'unbloat';
$app['packager'] = 'unbloat';
$app['license'] = 'Apache-2.0';
$app['license_core'] = 'Apache-2.0';
$app['description'] = lang('unbloat_app_description');

$app['name'] = lang('unbloat_app_name');
$app['category'] = lang('base_category_network');
$app['subcategory'] = lang('base_subcategory_bandwidth_control');

$app['controllers']['unbloat']['title'] = lang('unbloat_app_name');
$app['controllers']['lines']['title'] = lang('unbloat_lines');

$app['requires'] = array('app-network');

// ClearOS's own QoS engine does the shaping.
$app['core_requires'] = array('app-base-core', 'app-network-core', 'app-qos-core', 'unbloat');

$app['core_file_manifest'] = array(
    'unbloatd.php' => array('target' => '/var/clearos/base/daemon/unbloatd.php'),
    'app-unbloat.sudoers' => array('target' => '/etc/sudoers.d/app-unbloat', 'mode' => '0440'),
    'unbloatd.conf' => array('target' => '/usr/lib/systemd/system/unbloatd.service.d/clearos.conf'),
);

$app['delete_dependency'] = array('app-unbloat-core');
