<?php

// SPDX-License-Identifier: Apache-2.0

namespace OPNsense\Unbloat\Api;

use OPNsense\Base\ApiMutableServiceControllerBase;
use OPNsense\Base\UserException;
use OPNsense\Core\Backend;

class ServiceController extends ApiMutableServiceControllerBase
{
    protected static $internalServiceClass = '\OPNsense\Unbloat\Unbloat';
    protected static $internalServiceEnabled = 'general.enabled';
    protected static $internalServiceTemplate = 'OPNsense/Unbloat';
    protected static $internalServiceName = 'unbloat';

    // A change of the settings is read by the daemon that runs, so that the shaping
    // stays meanwhile. A new key needs a new start, which the action does by itself.
    protected function reconfigureForceRestart()
    {
        return 0;
    }

    public function reconfigureAction()
    {
        if ($this->request->isPost() && $this->serviceEnabled()) {
            $backend = new Backend();
            $backend->configdpRun('template reload', [static::$internalServiceTemplate]);
            $check = json_decode(trim((string)$backend->configdRun('unbloat check')), true);
            if (!is_array($check) || !$check['ok']) {
                $says = is_array($check) ? $check['says'] : gettext('The daemon could not be asked; is the package unbloat installed?');
                throw new UserException($says, gettext('These settings cannot work'));
            }
        }
        return parent::reconfigureAction();
    }
}
