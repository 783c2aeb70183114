<?php

// SPDX-License-Identifier: Apache-2.0

$this->lang->load('unbloat');

echo form_open("unbloat/lines/edit/$interface");
echo form_header(lang('unbloat_line') . ' ' . htmlspecialchars($interface, ENT_QUOTES, 'UTF-8'));
echo field_input('down', $down, lang('unbloat_down'));
echo field_input('up', $up, lang('unbloat_up'));
echo field_button_set(array(form_submit_update('submit'), anchor_cancel('/app/unbloat')));
echo form_footer();
echo form_close();
