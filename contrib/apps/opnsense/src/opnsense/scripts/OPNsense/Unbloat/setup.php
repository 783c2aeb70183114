#!/usr/local/bin/php
<?php

// SPDX-License-Identifier: Apache-2.0
//
// Writes api.env, by which the daemon reaches this router's own API: the address, the
// key and its secret, and the fingerprint of the web server's certificate.
//
//   setup.php [CONFIG.XML [DIRECTORY]]

$file = $argv[1] ?? '/conf/config.xml';
$dir = $argv[2] ?? (getenv('UNBLOAT_ETC') ?: '/usr/local/etc/unbloat');

function end_with($says)
{
    fwrite(STDERR, "unbloat: $says\n");
    exit(1);
}

$config = simplexml_load_file($file);
if ($config === false) {
    end_with("$file can not be read");
}
$gui = $config->system->webgui;
if ((string)$gui->protocol === 'http') {
    end_with('the web interface is without encryption: choose HTTPS in System: Settings: Administration');
}
$general = $config->OPNsense->unbloat->general;
if (empty((string)$general->key) || empty((string)$general->secret)) {
    end_with('there is no API key: make one in System: Access: Users, and give it in Firewall: Queue control: Settings');
}
$fingerprint = '';
foreach ($config->cert as $cert) {
    if ((string)$cert->refid === (string)$gui->{'ssl-certref'}) {
        $fingerprint = openssl_x509_fingerprint((string)base64_decode((string)$cert->crt), 'sha256');
    }
}
if (empty($fingerprint)) {
    end_with('the certificate of the web interface is not in ' . $file);
}
$port = (string)$gui->port ?: '443';
$lines = [
    'ROUTER' => "opnsense+https://127.0.0.1:$port",
    'OPNSENSE_KEY' => (string)$general->key,
    'OPNSENSE_SECRET' => (string)$general->secret,
    'OPNSENSE_FINGERPRINT' => $fingerprint,
    'UNBLOAT_STATE_DIR' => getenv('UNBLOAT_STATE_DIR') ?: '/var/run/unbloat',
];
$text = "# Written by OPNsense; the key of its API is for root alone.\n";
foreach ($lines as $name => $value) {
    $text .= $name . '=' . escapeshellarg($value) . "\n";
}
umask(0077);
if (!is_dir($dir) && !mkdir($dir, 0700, true)) {
    end_with("$dir can not be made");
}
$new = "$dir/.api.env.new";
if (file_put_contents($new, $text) === false || !rename($new, "$dir/api.env")) {
    end_with("$dir/api.env can not be written");
}
