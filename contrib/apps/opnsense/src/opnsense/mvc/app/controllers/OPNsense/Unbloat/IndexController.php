<?php

// SPDX-License-Identifier: Apache-2.0

namespace OPNsense\Unbloat;

class IndexController extends \OPNsense\Base\IndexController
{
    public function indexAction()
    {
        $this->view->formLine = $this->getForm('line');
        $this->view->formEntry = $this->getForm('entry');
        $this->view->formSettings = $this->getForm('settings');
        $this->view->pick('OPNsense/Unbloat/index');
    }
}
