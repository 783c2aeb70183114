<?php

// SPDX-License-Identifier: Apache-2.0

namespace OPNsense\Unbloat\Api;

use OPNsense\Base\ApiMutableModelControllerBase;

class SettingsController extends ApiMutableModelControllerBase
{
    protected static $internalModelName = 'unbloat';
    protected static $internalModelClass = '\OPNsense\Unbloat\Unbloat';

    public function searchLineAction()
    {
        return $this->searchBase('lines.line', ['enabled', 'interface', 'down', 'up', 'follow', 'description'], 'interface');
    }

    public function getLineAction($uuid = null)
    {
        return $this->getBase('line', 'lines.line', $uuid);
    }

    public function addLineAction()
    {
        return $this->addBase('line', 'lines.line');
    }

    public function setLineAction($uuid)
    {
        return $this->setBase('line', 'lines.line', $uuid);
    }

    public function delLineAction($uuid)
    {
        return $this->delBase('lines.line', $uuid);
    }

    public function toggleLineAction($uuid, $enabled = null)
    {
        return $this->toggleBase('lines.line', $uuid, $enabled);
    }
}
