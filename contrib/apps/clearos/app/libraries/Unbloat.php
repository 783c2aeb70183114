<?php

// SPDX-License-Identifier: Apache-2.0

namespace clearos\apps\unbloat;

$bootstrap = getenv('CLEAROS_BOOTSTRAP') ? getenv('CLEAROS_BOOTSTRAP') : '/usr/clearos/framework/shared';
require_once $bootstrap . '/bootstrap.php';

clearos_load_language('unbloat');

use \clearos\apps\base\Daemon as Daemon;
use \clearos\apps\base\Engine_Exception as Engine_Exception;
use \clearos\apps\base\File as File;
use \clearos\apps\base\Shell as Shell;
use \clearos\apps\base\Validation_Exception as Validation_Exception;

clearos_load_library('base/Daemon');
clearos_load_library('base/Engine_Exception');
clearos_load_library('base/File');
clearos_load_library('base/Shell');
clearos_load_library('base/Validation_Exception');

/**
 * The lines that unbloatd keeps shaped, and the service.
 *
 * Its configuration is edited line by line: what a person or the daemon wrote
 * there stays as it is.
 */

class Unbloat extends Daemon
{
    const FILE_CONFIG = '/etc/unbloat/unbloat.toml';
    const COMMAND = '/usr/bin/unbloat';

    public function __construct()
    {
        clearos_profile(__METHOD__, __LINE__);

        parent::__construct('unbloatd');
    }

    /**
     * Returns the lines.
     *
     * @return array of arrays with down and up in Mbit/s ('' if not given), by interface
     */

    public function get_lines()
    {
        clearos_profile(__METHOD__, __LINE__);

        $lines = array();
        foreach ($this->_read() as $block) {
            if ($block['interface'] === '')
                continue;
            $lines[$block['interface']] = array('down' => self::mbit($block['down']), 'up' => self::mbit($block['up']));
        }
        return $lines;
    }

    /**
     * Sets the speeds of a line, which is new or not.
     *
     * @param string $interface towards the internet
     * @param string $down      in Mbit/s
     * @param string $up        in Mbit/s
     *
     * @return void
     * @throws Engine_Exception, Validation_Exception
     */

    public function set_line($interface, $down, $up)
    {
        clearos_profile(__METHOD__, __LINE__);

        Validation_Exception::is_valid($this->validate_interface($interface));
        Validation_Exception::is_valid($this->validate_speed($down));
        Validation_Exception::is_valid($this->validate_speed($up));

        $blocks = $this->_read();
        $found = FALSE;
        foreach ($blocks as $i => $block) {
            if ($block['interface'] !== $interface)
                continue;
            $found = TRUE;
            foreach (array('down' => $down, 'up' => $up) as $key => $rate)
                $blocks[$i]['lines'] = self::with($blocks[$i]['lines'], $key, "$rate Mbit/s");
        }
        if (! $found) {
            $last = end($blocks);
            $before = end($last['lines']);
            $lines = $before === FALSE || trim($before) === '' ? array() : array('');
            array_push($lines, '[[wan]]', "interface = \"$interface\"", "down = \"$down Mbit/s\"", "up = \"$up Mbit/s\"");
            $blocks[] = array('lines' => $lines);
        }
        $this->_write($blocks);
    }

    /**
     * Deletes a line. Its shaping is taken back.
     *
     * @param string $interface towards the internet
     *
     * @return void
     * @throws Engine_Exception, Validation_Exception
     */

    public function delete_line($interface)
    {
        clearos_profile(__METHOD__, __LINE__);

        Validation_Exception::is_valid($this->validate_interface($interface));

        $this->_run("revert --wan $interface");
        $blocks = array();
        foreach ($this->_read() as $block) {
            if ($block['interface'] !== $interface)
                $blocks[] = $block;
        }
        $this->_write($blocks);
    }

    /**
     * Turns all of it on or off, over reboots too.
     *
     * @param boolean $on on
     *
     * @return void
     * @throws Engine_Exception
     */

    public function set_engine_state($on)
    {
        clearos_profile(__METHOD__, __LINE__);

        $interfaces = array_keys($this->get_lines());
        if ($on) {
            if (count($interfaces) === 0)
                throw new Engine_Exception(lang('unbloat_no_line'));
            $this->set_boot_state(TRUE);
            $this->set_running_state(TRUE);
            // One that was turned off stays so over restarts, until it is turned on.
            foreach ($this->get_status_of_lines() as $interface => $line) {
                if ($line['state'] === 'suspended')
                    $this->_run("apply --again --yes --wan $interface");
            }
            return;
        }
        foreach ($interfaces as $interface)
            $this->_run("revert --wan $interface");
        $this->set_running_state(FALSE);
        $this->set_boot_state(FALSE);
    }

    /**
     * Returns whether it is on.
     *
     * @return boolean TRUE if it runs, and will after a reboot
     */

    public function get_engine_state()
    {
        clearos_profile(__METHOD__, __LINE__);

        return $this->get_running_state() && $this->get_boot_state();
    }

    /**
     * Returns how the daemon keeps the lines.
     *
     * @return array of arrays with state and why, by interface; empty if it does not run
     */

    public function get_status_of_lines()
    {
        clearos_profile(__METHOD__, __LINE__);

        $status = NULL;
        foreach ($this->_run('status --json') as $line) {
            $status = json_decode($line, TRUE);
            if (is_array($status))
                break;
        }
        $lines = array();
        if (! is_array($status) || empty($status['daemon']['wans']))
            return $lines;
        foreach ($status['daemon']['wans'] as $wan) {
            $lines[$wan['wan']] = array(
                'state' => $wan['state'],
                'why' => isset($wan['why']) ? $wan['why'] : '',
                'mends' => isset($wan['mends']) ? (int)$wan['mends'] : 0,
            );
        }
        return $lines;
    }

    /**
     * Validation routine for an interface.
     *
     * @param string $interface interface
     *
     * @return string what is wrong with it
     */

    public function validate_interface($interface)
    {
        if (! preg_match('/^[A-Za-z0-9_][A-Za-z0-9_.:]{0,14}$/', $interface))
            return lang('unbloat_interface_invalid');
    }

    /**
     * Validation routine for a speed.
     *
     * @param string $speed in Mbit/s
     *
     * @return string what is wrong with it
     */

    public function validate_speed($speed)
    {
        if (! preg_match('/^[0-9]{1,6}(\.[0-9]{1,6})?$/', $speed) || (float)$speed <= 0)
            return lang('unbloat_speed_invalid');
    }

    /**
     * Reads the configuration as blocks: what stands before the first [[wan]], and
     * each of these.
     *
     * @return array of arrays with lines, interface, down and up
     */

    private function _read()
    {
        $file = new File(self::FILE_CONFIG, TRUE);
        $text = $file->exists() ? $file->get_contents_as_array() : array();
        $block = array('lines' => array(), 'interface' => '', 'down' => '', 'up' => '');
        $blocks = array();
        $now = $block;
        foreach ($text as $line) {
            if (preg_match('/^\s*\[/', $line)) {
                $blocks[] = $now;
                $now = $block;
                $now['is'] = (bool)preg_match('/^\s*\[\[\s*wan\s*\]\]/', $line);
            } else if (! empty($now['is']) && preg_match('/^\s*(interface|down|up)\s*=\s*["\']([^"\']*)["\']/', $line, $m)) {
                $now[$m[1]] = $m[2];
            }
            $now['lines'][] = $line;
        }
        $blocks[] = $now;
        return $blocks;
    }

    /**
     * Writes the configuration if the daemon takes it, which then reads it.
     *
     * @param array $blocks blocks
     *
     * @return void
     * @throws Engine_Exception
     */

    private function _write($blocks)
    {
        $lines = array();
        $wans = 0;
        foreach ($blocks as $block) {
            $lines = array_merge($lines, $block['lines']);
            $wans += (bool)preg_grep('/^\s*\[\[\s*wan\s*\]\]/', $block['lines']);
        }
        if ($wans > 0) {
            $temp = tempnam('/var/tmp', 'unbloat-');
            file_put_contents($temp, implode("\n", $lines) . "\n");
            $says = $this->_run("daemon --check --config $temp", $code);
            unlink($temp);
            if ($code !== 0)
                throw new Engine_Exception(str_replace("$temp:", '', implode(' ', $says)));
        }
        $file = new File(self::FILE_CONFIG, TRUE);
        if (! $file->exists())
            $file->create('root', 'root', '0644');
        $file->dump_contents_from_array($lines);
        $this->reset();
    }

    /**
     * Runs the program as root.
     *
     * @param string  $args arguments, of words that need no quotes
     * @param integer $code gets its exit code
     *
     * @return array lines of what it said
     */

    private function _run($args, &$code = NULL)
    {
        $shell = new Shell();
        $code = $shell->execute(self::COMMAND, $args, TRUE, array('validate_exit_code' => FALSE));
        return $shell->get_output();
    }

    /**
     * Returns lines in which a key has a value; what stands behind the old one stays.
     *
     * @param array  $lines lines of a block
     * @param string $key   key
     * @param string $value value
     *
     * @return array lines
     */

    private static function with($lines, $key, $value)
    {
        foreach ($lines as $i => $line) {
            if (preg_match('/^(\s*' . $key . '\s*=\s*)(["\'])[^"\']*["\'](.*)$/', $line, $m)) {
                $lines[$i] = $m[1] . '"' . $value . '"' . $m[3];
                return $lines;
            }
        }
        array_splice($lines, 1, 0, "$key = \"$value\"");
        return $lines;
    }

    /**
     * Returns a rate as the daemon writes it in Mbit/s.
     *
     * @param string $rate such as 9.5 Mbit/s
     *
     * @return string in Mbit/s; '' if it is none
     */

    private static function mbit($rate)
    {
        if (! preg_match('/^\s*([0-9.]+)\s*([kKMG]?)bit(\/s|ps)?\s*$/', $rate, $m))
            return '';
        $in = array('' => 1e-6, 'k' => 1e-3, 'K' => 1e-3, 'M' => 1, 'G' => 1e3);
        return (string)round((float)$m[1] * $in[$m[2]], 6);
    }
}
