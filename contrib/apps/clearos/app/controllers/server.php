<?php

// SPDX-License-Identifier: Apache-2.0

$bootstrap = getenv('CLEAROS_BOOTSTRAP') ? getenv('CLEAROS_BOOTSTRAP') : '/usr/clearos/framework/shared';
require_once $bootstrap . '/bootstrap.php';

require clearos_app_base('base') . '/controllers/daemon.php';

class Server extends Daemon
{
    function __construct()
    {
        parent::__construct('unbloatd', 'unbloat');
    }
}
