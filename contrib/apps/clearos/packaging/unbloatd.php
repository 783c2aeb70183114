<?php

// SPDX-License-Identifier: Apache-2.0

$bootstrap = getenv('CLEAROS_BOOTSTRAP') ? getenv('CLEAROS_BOOTSTRAP') : '/usr/clearos/framework/shared';
require_once $bootstrap . '/bootstrap.php';

clearos_load_language('unbloat');

$configlet = array(
    'title' => lang('unbloat_app_name'),
    'package' => 'unbloat',
    'process_name' => 'unbloat',
    'reloadable' => TRUE,
    'url' => '/app/unbloat'
);
