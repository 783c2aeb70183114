<?php
// Boots the API of a checkout of OPNsense's core repository, and gives it requests.
//
//   php opnsense.php CHECKOUT DIR
//
// DIR/conf holds config.xml. Each line of standard input is one JSON object, and so
// is each answer:
//
//   {"method":"POST","uri":"/api/trafficshaper/…","body":"…"}  →  {"http":200,"body":"…"}
//   {"config":true}  →  {"items":{"pipe":[{"uuid":…,"fields":{…}},…],…}}: what config.xml holds
//   {…,"items":true}: both
//   {"reset":"…"}    →  {"reset":true}: config.xml is this from now on
//
// Each request has a process of its own, as it has on the router: the models keep
// caches for a request's time. What does not belong to the shaper is stood in for:
// users and their rights, sessions, the log, configd, and a validation library that
// this model does not use.

namespace OPNsense\Core {
    class ACL
    {
        public function isPageAccessible($user, $uri)
        {
            return true;
        }
        public function hasPrivilege($user, $privilege)
        {
            return false;
        }
    }

    class Syslog
    {
        public function __construct(...$unused)
        {
        }
        public function __call($level, $message)
        {
        }
    }

    class Backend
    {
        public function __call($name, $args)
        {
            throw new \Exception('there is no configd here');
        }
    }
}

namespace OPNsense\Auth {
    class AuthenticationFactory
    {
        public function get($name)
        {
            return new class () {
                public function authenticate($key, $secret)
                {
                    return true;
                }
                public function getLastAuthProperties()
                {
                    return ['username' => 'root'];
                }
            };
        }
    }
}

namespace Phalcon\Filter {
    class Validation
    {
        public function validate($data)
        {
            return [];
        }
    }
}

namespace OPNsense\Mvc {
    class Session
    {
        public function __call($name, $args)
        {
            return null;
        }
    }

    // The request's body is what was given here.
    function file_get_contents($name)
    {
        return $name == 'php://input' ? $GLOBALS['body'] : \file_get_contents($name);
    }
}

namespace {
    use OPNsense\Core\AppConfig;

    // Warnings are no errors, as in OPNsense's php.ini.
    error_reporting(E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR);
    ini_set('display_errors', 'stderr');

    [, $core, $dir] = $argv;
    $app = "$core/src/opnsense/mvc/app";
    set_include_path("$app/config");
    $config = include "$app/config/config.php";
    (new AppConfig())->update('application.configDir', "$dir/conf");
    include "$app/config/loader.php";
    foreach (['Mvc\Router', 'Mvc\Dispatcher', 'Mvc\Response', 'Mvc\Request', 'TrafficShaper\Api\SettingsController', 'TrafficShaper\TrafficShaper', 'Core\Config'] as $class) {
        class_exists("OPNsense\\$class");
    }

    // What api.php does with an exception.
    function serve(array $r): array
    {
        $_SERVER['REQUEST_METHOD'] = $r['method'];
        $_SERVER['REQUEST_URI'] = $r['uri'];
        $_SERVER['REMOTE_ADDR'] = '192.0.2.1';
        $_SERVER['HTTP_AUTHORIZATION'] = 'Basic ' . base64_encode('key:secret');
        if ($r['method'] == 'POST') {
            $_SERVER['HTTP_CONTENT_TYPE'] = 'application/json';
        }
        parse_str((string)parse_url($r['uri'], PHP_URL_QUERY), $_GET);
        $_POST = [];
        $_REQUEST = $_GET;
        $GLOBALS['body'] = $r['body'] ?? '';
        $failed = function (int $http, $e, string $says) {
            $body = ['errorMessage' => $says];
            if (method_exists($e, 'getTitle')) {
                $body['errorTitle'] = $e->getTitle();
            }
            return ['http' => $http, 'body' => htmlspecialchars(json_encode($body, JSON_UNESCAPED_SLASHES), ENT_NOQUOTES), 'log' => $e->getMessage()];
        };
        ob_start();
        try {
            $response = (new OPNsense\Mvc\Router('/api/', 'Api'))->routeRequest($r['uri'], ['action' => 'indexAction']);
            if (!$response->isSent()) {
                $response->send();
            }
            return ['http' => $response->getStatusCode() ?? 200, 'body' => ob_get_clean()];
        } catch (OPNsense\Base\UserException $e) {
            ob_end_clean();
            return $failed($e->getHttpCode(), $e, $e->getMessage());
        } catch (OPNsense\Mvc\Exceptions\DispatchException $e) {
            ob_end_clean();
            return $failed(404, $e, 'Endpoint not found');
        } catch (Throwable $e) {
            ob_end_clean();
            return $failed(500, $e, 'Unexpected error, check log for details');
        }
    }

    // The shaper's part of config.xml, in its order.
    function items(string $file): array
    {
        $out = [];
        $xml = simplexml_load_file($file);
        foreach (['pipe', 'queue', 'rule'] as $kind) {
            $out[$kind] = [];
            foreach ($xml->xpath("/opnsense/OPNsense/TrafficShaper/{$kind}s/{$kind}") as $x) {
                $fields = [];
                foreach ($x->children() as $name => $v) {
                    $fields[$name] = (string)$v;
                }
                if (count($fields)) {
                    $out[$kind][] = ['uuid' => (string)$x['uuid'], 'fields' => $fields];
                }
            }
        }
        return ['items' => $out];
    }

    function answer(array $r, string $file): array
    {
        if (isset($r['reset'])) {
            file_put_contents($file, $r['reset']);
            return ['reset' => true];
        }
        if (isset($r['config'])) {
            return items($file);
        }
        return serve($r) + (isset($r['items']) ? items($file) : []);
    }

    while (($line = fgets(STDIN)) !== false) {
        $pid = pcntl_fork();
        if ($pid == 0) {
            fwrite(STDOUT, json_encode(answer(json_decode($line, true), "$dir/conf/config.xml"), JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
            exit(0);
        }
        pcntl_waitpid($pid, $status);
        if ($status != 0) {
            fwrite(STDOUT, json_encode(['http' => 500, 'body' => '', 'log' => "the request's process ended with $status"]) . "\n");
        }
    }
}
