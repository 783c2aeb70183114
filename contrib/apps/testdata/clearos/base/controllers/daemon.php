<?php
// ClearOS's page of a daemon, to begin with.
class Daemon
{
    public $daemon;
    function __construct($daemon, $app)
    {
        $this->daemon = "$daemon of $app";
    }
}
