<?php

// SPDX-License-Identifier: Apache-2.0

namespace OPNsense\Unbloat\Api;

use OPNsense\Base\ApiControllerBase;
use OPNsense\Core\Backend;

class StatusController extends ApiControllerBase
{
    // get: what `unbloat status --json` says: the shapers with their queues, and how
    // the daemon keeps each line, and why.
    public function getAction()
    {
        return $this->ask((string)(new Backend())->configdRun('unbloat show'));
    }

    // off: no shaping on this line, over restarts too, until it is turned on.
    public function offAction($interface)
    {
        return $this->turn('off', $interface);
    }

    public function onAction($interface)
    {
        return $this->turn('on', $interface);
    }

    // test: measure this line, which fills it for a minute; run says how that goes.
    public function testAction($interface)
    {
        return $this->turn('test', $interface);
    }

    public function runAction()
    {
        return $this->ask((string)(new Backend())->configdRun('unbloat run'));
    }

    public function endrunAction()
    {
        return $this->request->isPost() ? $this->ask((string)(new Backend())->configdRun('unbloat endrun')) : [];
    }

    // enter: the way into unbloat's own page, which is good once. OPNsense's login and
    // privileges have said who asks: those who may only see the status get visit.
    public function enterAction()
    {
        return $this->request->isPost() ? $this->ask((string)(new Backend())->configdRun('unbloat enter')) : [];
    }

    public function visitAction()
    {
        return $this->request->isPost() ? $this->ask((string)(new Backend())->configdRun('unbloat visit')) : [];
    }

    private function turn($which, $interface)
    {
        if (!$this->request->isPost() || !preg_match('/^[a-z][a-z0-9_]{0,31}$/', (string)$interface)) {
            return ['error' => gettext('Give an interface, such as wan, by POST.')];
        }
        return $this->ask((string)(new Backend())->configdpRun('unbloat ' . $which, [$interface]));
    }

    private function ask($says)
    {
        $answer = json_decode(trim($says), true);
        if (!is_array($answer)) {
            return ['error' => gettext('The program could not be asked; is the package unbloat installed?')];
        }
        return $answer;
    }
}
