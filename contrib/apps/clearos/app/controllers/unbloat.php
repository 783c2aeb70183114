<?php

// SPDX-License-Identifier: Apache-2.0

class Unbloat extends ClearOS_Controller
{
    function index()
    {
        $this->lang->load('unbloat');
        $this->page->view_controllers(array('unbloat/server', 'unbloat/lines'), lang('unbloat_app_name'));
    }
}
