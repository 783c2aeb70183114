<?php
// Stands in for what ClearOS's framework gives an app. CLEAROS_TEST is a directory
// with the machine's files below root/; the program is UNBLOAT_PROGRAM, and what is
// run as root is noted in ran.

namespace {
    define('TEST', getenv('CLEAROS_TEST'));
    define('APP', dirname(dirname(__DIR__)) . '/clearos/app');
    function clearos_profile($method, $line)
    {
    }
    function clearos_load_language($app)
    {
        $lang = array();
        include APP . '/language/' . (getenv('CLEAROS_LANG') ?: 'en_US') . "/{$app}_lang.php";
        $GLOBALS['words'] = $lang;
    }
    function clearos_load_library($name)
    {
    }
    function clearos_app_base($app)
    {
        return __DIR__ . "/$app";
    }
    function lang($name)
    {
        if (!isset($GLOBALS['words'][$name])) {
            throw new \Exception("there is no text $name");
        }
        return $GLOBALS['words'][$name];
    }
}

namespace clearos\apps\base {
    class Engine_Exception extends \Exception
    {
    }
    class Validation_Exception extends \Exception
    {
        public static function is_valid($says)
        {
            if ($says) {
                throw new Validation_Exception($says);
            }
        }
    }
    class File
    {
        private $name;
        public function __construct($name, $superuser = FALSE)
        {
            $this->name = TEST . '/root' . $name;
        }
        public function exists()
        {
            return file_exists($this->name);
        }
        public function get_contents_as_array()
        {
            return explode("\n", rtrim(file_get_contents($this->name), "\n"));
        }
        public function create($owner, $group, $mode)
        {
            mkdir(dirname($this->name), 0755, TRUE);
            touch($this->name);
        }
        public function dump_contents_from_array($lines)
        {
            file_put_contents($this->name, implode("\n", $lines) . "\n");
        }
    }
    class Shell
    {
        private $output = array();
        public function execute($command, $args, $superuser = FALSE, $options = NULL)
        {
            if (!$superuser) {
                throw new \Exception("$command is not run as root");
            }
            file_put_contents(TEST . '/ran', preg_replace('~/unbloat-\w+$~', '/unbloat-X', "$command $args") . "\n", FILE_APPEND);
            $command = $command === '/usr/bin/unbloat' ? getenv('UNBLOAT_PROGRAM') : $command;
            exec("$command $args 2>&1", $this->output, $code);
            return $code;
        }
        public function get_output()
        {
            return $this->output;
        }
    }
    class Daemon
    {
        private $name;
        public function __construct($name)
        {
            $this->name = $name;
        }
        private function is($what, $state = NULL)
        {
            $file = TEST . "/{$this->name}.$what";
            if ($state !== NULL) {
                file_put_contents(TEST . '/ran', "$what " . (int)$state . "\n", FILE_APPEND);
                $state ? touch($file) : @unlink($file);
            }
            return file_exists($file);
        }
        public function get_boot_state()
        {
            return $this->is('boot');
        }
        public function set_boot_state($state)
        {
            $this->is('boot', $state);
        }
        public function get_running_state()
        {
            return $this->is('runs');
        }
        public function set_running_state($state)
        {
            $this->is('runs', $state);
        }
        public function reset($background = FALSE)
        {
            if ($this->get_running_state()) {
                file_put_contents(TEST . '/ran', "reload\n", FILE_APPEND);
            }
        }
    }
}
