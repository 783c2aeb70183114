<?php
// Runs a controller of the app as ClearOS does, with stand-ins of its widgets.
//
//   page.php CONTROLLER METHOD POST.JSON [ARGUMENT…]

putenv('CLEAROS_BOOTSTRAP=' . __DIR__);
require __DIR__ . '/bootstrap.php';

[, $name, $method, $post] = $argv;
$post = json_decode($post, true);

class Anything
{
    public function __call($name, $args)
    {
        return TRUE;
    }
}
class Input
{
    public function post($name)
    {
        return $GLOBALS['post'][$name] ?? FALSE;
    }
}
class Form_Validation
{
    private $policies = array();
    public function set_policy($field, $library, $method, $required = FALSE)
    {
        $this->policies[$field] = $method;
    }
    public function run()
    {
        foreach ($this->policies as $field => $method) {
            if ($says = $GLOBALS['controller']->unbloat->$method($GLOBALS['post'][$field] ?? '')) {
                echo "$field: $says\n";
                return FALSE;
            }
        }
        return TRUE;
    }
}
class Iface_Manager
{
    public function get_external_interfaces()
    {
        return array('wan', 'eth9');
    }
}
class Loader
{
    public function library($name)
    {
        if ($name === 'unbloat/Unbloat') {
            require_once APP . '/libraries/Unbloat.php';
            $GLOBALS['controller']->unbloat = new \clearos\apps\unbloat\Unbloat();
            return;
        }
        $GLOBALS['controller']->iface_manager = new Iface_Manager();
    }
}
class Language
{
    public function load($name)
    {
        clearos_load_language($name);
    }
}
class Page
{
    public $lang;
    public function __construct()
    {
        $this->lang = new Language();
    }
    public function view_form($view, $data, $title)
    {
        extract($data);
        include APP . '/views/' . basename($view) . '.php';
    }
    public function view_controllers($names, $title)
    {
        echo implode(' ', $names), "\n";
    }
    public function view_exception($e)
    {
        echo 'exception: ', $e->getMessage(), "\n";
    }
    public function view_confirm_delete($yes, $no, $items)
    {
        echo "delete? $yes\n";
    }
    public function set_status_updated()
    {
        echo "updated\n";
    }
}
class ClearOS_Controller
{
    public $lang, $load, $page, $input, $form_validation, $unbloat, $iface_manager;
    public function __construct()
    {
        $this->lang = new Language();
        $this->load = new Loader();
        $this->page = new Page();
        $this->input = new Input();
        $this->form_validation = new Form_Validation();
    }
}
function redirect($to)
{
    echo "redirect $to\n";
}
foreach (array('anchor_edit', 'anchor_add', 'anchor_delete', 'anchor_cancel', 'form_open', 'form_header', 'form_submit_update') as $f) {
    eval("function $f(\$a = '') { return \"[$f \$a]\"; }");
}
function form_footer()
{
    return '';
}
function form_close()
{
    return "\n";
}
function anchor_custom($url, $text)
{
    return "[$text $url]";
}
function button_set($buttons)
{
    return implode('', $buttons);
}
function field_button_set($buttons)
{
    return implode('', $buttons);
}
function field_input($name, $value, $label)
{
    return "$label: <$name>$value\n";
}
function summary_table($title, $anchors, $headers, $items, $options)
{
    $text = "$title " . implode('', $anchors) . "\n" . implode(' | ', $headers) . "\n";
    foreach ($items as $i) {
        $text .= implode(' | ', $i['details']) . ' ' . $i['anchors'] . "\n";
    }
    return $text;
}

require APP . "/controllers/$name.php";
$class = ucfirst($name);
$controller = new $class();
if ($method === 'daemon') {
    echo $controller->daemon, "\n";
    exit;
}
$controller->$method(...array_slice($argv, 4));
