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

    public function searchEntryAction()
    {
        return $this->searchBase('schedule.entry', ['enabled', 'do', 'wan', 'at', 'from', 'to', 'days', 'description'], 'do');
    }

    public function getEntryAction($uuid = null)
    {
        return $this->getBase('entry', 'schedule.entry', $uuid);
    }

    public function addEntryAction()
    {
        return $this->addBase('entry', 'schedule.entry');
    }

    public function setEntryAction($uuid)
    {
        return $this->setBase('entry', 'schedule.entry', $uuid);
    }

    public function delEntryAction($uuid)
    {
        return $this->delBase('schedule.entry', $uuid);
    }

    public function toggleEntryAction($uuid, $enabled = null)
    {
        return $this->toggleBase('schedule.entry', $uuid, $enabled);
    }
}
