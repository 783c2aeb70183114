<?php

// SPDX-License-Identifier: Apache-2.0

$lang['unbloat_app_name'] = 'Kurze Warteschlangen';
$lang['unbloat_app_description'] = 'Gespräche stocken, wenn jemand etwas hochlädt, weil Pakete in einer langen Warteschlange im Modem stehen. Diese App hält sie kurz. Geben Sie die Geschwindigkeiten Ihrer Leitung ein und schalten Sie sie ein.';
$lang['unbloat_lines'] = 'Leitungen';
$lang['unbloat_line'] = 'Leitung';
$lang['unbloat_interface'] = 'Schnittstelle';
$lang['unbloat_down'] = 'Download (Mbit/s)';
$lang['unbloat_up'] = 'Upload (Mbit/s)';
$lang['unbloat_state'] = 'Zustand';
$lang['unbloat_enable'] = 'Einschalten';
$lang['unbloat_disable'] = 'Ausschalten';
$lang['unbloat_not_running'] = 'aus';
$lang['unbloat_in_place'] = 'in Kraft';
$lang['unbloat_put_back'] = 'wiederhergestellt';
$lang['unbloat_speed_invalid'] = 'Geben Sie die Geschwindigkeit in Mbit/s an, wie ein Geschwindigkeitstest sie misst: eine Zahl über 0.';
$lang['unbloat_interface_invalid'] = 'Diese Schnittstelle gibt es nicht.';
$lang['unbloat_no_line'] = 'Geben Sie zuerst die Geschwindigkeiten einer Leitung ein.';
