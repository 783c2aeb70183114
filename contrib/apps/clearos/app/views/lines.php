<?php

// SPDX-License-Identifier: Apache-2.0

$this->lang->load('unbloat');

// The program's words are shown as they are, but never as markup.
$text = function ($s) {
    return htmlspecialchars($s, ENT_QUOTES, 'UTF-8');
};

$items = array();
foreach (array_unique(array_merge(array_keys($lines), $interfaces)) as $interface) {
    $known = isset($lines[$interface]);
    $state = lang('unbloat_not_running');
    if ($on && isset($status[$interface])) {
        $s = $status[$interface];
        $state = $s['state'] === 'in place' ? lang('unbloat_in_place') : ($s['state'] === 'suspended' ? $state : $text($s['state']));
        if ($s['mends'] > 0)
            $state .= ', ' . lang('unbloat_put_back') . ' ' . $s['mends'] . '×';
        if ($s['why'] !== '')
            $state .= ': ' . $text($s['why']);
    }
    $buttons = array($known ? anchor_edit("/app/unbloat/lines/edit/$interface") : anchor_add("/app/unbloat/lines/edit/$interface"));
    if ($known)
        $buttons[] = anchor_delete("/app/unbloat/lines/delete/$interface");
    $items[] = array(
        'title' => $text($interface),
        'action' => '',
        'anchors' => button_set($buttons),
        'details' => array(
            $text($interface),
            $known ? $text($lines[$interface]['down']) : '',
            $known ? $text($lines[$interface]['up']) : '',
            $known ? $state : '',
        ),
    );
}

$switch = array();
if ($on)
    $switch[] = anchor_custom('/app/unbloat/lines/disable', lang('unbloat_disable'));
else if (count($lines) > 0)
    $switch[] = anchor_custom('/app/unbloat/lines/enable', lang('unbloat_enable'));

echo summary_table(
    lang('unbloat_lines'),
    $switch,
    array(lang('unbloat_interface'), lang('unbloat_down'), lang('unbloat_up'), lang('unbloat_state')),
    $items,
    array('id' => 'unbloat_lines')
);
